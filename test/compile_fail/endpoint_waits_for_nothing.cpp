// endpoint_waits_for_nothing.cpp   expect: chorale: an optional member of this Transport's endpoint has other parameters
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  struct endpoint {
    using pending = Done;
    Rank rank() const;
    int size() const;
    Done send(Rank, Tag, ConstBytes);
    Done recv(Rank, Tag, Bytes);
    void wait_any(int seconds);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};

auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }
