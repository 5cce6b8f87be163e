// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

// expect: compiles
#include <chorale/c/library.hpp>

struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
using Points = BasicBatch<float, float>;

int make(c::Job const& job, chorale_trainer** trainer) {
  return c::create(job, trainer, c::Model{"net", [](c::Job const& asked) {
                                            return c::alone(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}),
                                                            asked);
                                          }});
}

// expect: chorale: a library for C has models of networks that are an nn::Sequential
#include <chorale/c/library.hpp>

struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
using Points = BasicBatch<float, float>;

int make(c::Job const& job, chorale_trainer** trainer) {
  return c::create(job, trainer, c::Model{"sum", [](c::Job const& asked) {
                                            return c::alone(custom_model<Points>(
                                                                {{"offset"}}, [](auto&, Points const&) { return 0.0F; },
                                                                optim::SGD{}),
                                                            asked);
                                          }});
}

// expect: compiles
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
    bool wait_any(std::chrono::nanoseconds longest);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};

auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }

// expect: chorale: an optional member of this Transport's endpoint has other parameters
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

// expect: chorale: TimeDistributed<L> takes a layer that works on the last dimension, such as nn::Dense
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::TimeDistributed<nn::Conv2D<2, 3>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::TimeDistributed<nn::Dense<4>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<16, 6>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the transport argument is not a Transport. It needs reaches(Memory)
struct Nothing {};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Nothing{}}; }

// expect: chorale: this Transport cannot read the memory of this Strategy's device
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

// expect: compiles
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

auto connect() { return Live{MirroredStrategy{}, ReduceToOne{}, Mailbox{}}; }

// expect: compiles
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

auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }

// expect: chorale: the transport argument is not a Transport: it has no connect
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

// expect: chorale: the transport argument is not a Transport: it has no endpoint
struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  static constexpr bool reaches(Memory) { return true; }
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }

// expect: chorale: the transport argument is not a Transport: its endpoint has no pending
struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  struct endpoint {
    Rank rank() const;
    int size() const;
    Done send(Rank, Tag, ConstBytes);
    Done recv(Rank, Tag, Bytes);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }

// expect: chorale: the transport argument is not a Transport: its endpoint has no rank
struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  struct endpoint {
    using pending = Done;
    int size() const;
    Done send(Rank, Tag, ConstBytes);
    Done recv(Rank, Tag, Bytes);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }

// expect: chorale: the transport argument is not a Transport: its endpoint has no recv
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

// expect: chorale: the transport argument is not a Transport: its endpoint has no send
struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  struct endpoint {
    using pending = Done;
    Rank rank() const;
    int size() const;
    Done recv(Rank, Tag, Bytes);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }

// expect: chorale: the transport argument is not a Transport: its endpoint has no size
struct Done {
  bool done();
  void wait();
};
struct Mailbox {
  struct endpoint {
    using pending = Done;
    Rank rank() const;
    Done send(Rank, Tag, ConstBytes);
    Done recv(Rank, Tag, Bytes);
  };
  static constexpr bool reaches(Memory) { return true; }
  std::vector<endpoint> connect(Group const&);
};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Mailbox{}}; }
