// transport_without_recv.cpp   expect: chorale: the transport argument is not a Transport: its endpoint has no recv
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
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};

auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }
