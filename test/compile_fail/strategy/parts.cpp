// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

using Data   = Axis<"data", 2>;
using Tensor = Axis<"tensor", 2>;

struct Done {
  bool done();
  void wait();
};

// expect: compiles
auto const strategy = LocalSgd<1, MirroredStrategy<>>{MirroredStrategy{}};

// expect: chorale: LocalSgd<h> averages every h steps, and h is at least 1
auto const strategy = LocalSgd<0, MirroredStrategy<>>{MirroredStrategy{}};

// expect: compiles
auto const strategy = Gossip{MirroredStrategy{}};

// expect: chorale: Gossip needs a strategy with a copy of the variables on every replica, e.g. MirroredStrategy
auto const strategy = Gossip{CentralStorageStrategy{}};

// expect: compiles
auto const mesh = Mesh<Data>{Cpu::logical(2)};

// expect: chorale: a Mesh has at least one axis: Mesh<Axis<
auto const mesh = Mesh<>{Cpu::logical(2)};

// expect: compiles
auto const strategy = MeshStrategy{Mesh<Data>{Cpu::logical(2)}, sharded<Zero::one>("data")};

// expect: chorale: MeshStrategy takes a mesh and at most one sharded<Zero>(axis)
auto const strategy = MeshStrategy{Mesh<Data>{Cpu::logical(2)}, sharded<Zero::one>("data"), sharded<Zero::one>("data")};

// expect:  needs an Axis named
auto const strategy = MeshStrategy{Mesh<Tensor>{Cpu::logical(2)}, sharded<Zero::one>("data")};

// expect: compiles
auto const strategy =
    MeshStrategy{Mesh<Data, Axis<"stage", 2>>{Cpu::logical(4)}, pipelined<OneForwardOneBackward<4>>()};

// expect: alone: layers of a stage are not split over ranks. Remove the other Axis
auto const strategy =
    MeshStrategy{Mesh<Tensor, Axis<"stage", 2>>{Cpu::logical(4)}, pipelined<OneForwardOneBackward<4>>()};

// expect: compiles
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
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}.num_replicas(); }

// expect: chorale: the transport argument is not a Transport: send and recv of its endpoint return pending
struct Mailbox {
  struct endpoint {
    using pending = Done;
    Rank rank() const;
    int size() const;
    bool send(Rank, Tag, ConstBytes);
    Done recv(Rank, Tag, Bytes);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}.num_replicas(); }
