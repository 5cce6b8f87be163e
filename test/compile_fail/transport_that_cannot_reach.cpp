// transport_that_cannot_reach.cpp   expect: chorale: this Transport cannot read the memory of this Strategy's device
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
  };
  static constexpr bool reaches(Memory) { return false; }
  std::vector<endpoint> connect(Group const&);
};

auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }
