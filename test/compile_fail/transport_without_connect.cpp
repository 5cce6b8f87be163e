// transport_without_connect.cpp   expect: chorale: the transport argument is not a Transport: it has no connect
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
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }
