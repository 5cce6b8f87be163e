// transport_without_endpoint.cpp   expect: chorale: the transport argument is not a Transport: it has no endpoint
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  static constexpr bool reaches(Memory) { return true; }
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }
