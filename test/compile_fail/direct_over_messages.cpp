// direct_over_messages.cpp   expect: chorale: this Reduce cannot run over this Transport
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
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};

auto connect() { return Live{MirroredStrategy{}, DirectAllReduce{}, Mailbox{}}; }
