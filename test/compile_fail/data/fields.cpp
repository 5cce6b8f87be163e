// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
void use() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const x = std::vector<float>(10);
  trainer.fit(data::from_tensors(x, x, 1)
                  .map<Kind, Words>([](auto const&, auto& to) {
                    to[Kind{}].assign(1, 0);
                    to[Words{}].assign(5, 0);
                  })
                  .batch(5));
}

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
void use() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const x = std::vector<float>(10);
  trainer.fit(data::from_tensors(x, x, 1)
                  .map<Words, Score, Kind>([](auto const&, auto& to) {
                    to[Words{}].assign(5, 0);
                    to[Score{}].assign(1, 0);
                    to[Kind{}].assign(1, 0);
                  })
                  .batch(5));
}

// expect: chorale: a loss or a metric compares an output with a field that the batches do not have
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
void use() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const x = std::vector<float>(10);
  trainer.fit(data::from_tensors(x, x, 1)
                  .map<Score, Words>([](auto const&, auto& to) {
                    to[Score{}].assign(1, 0);
                    to[Words{}].assign(5, 0);
                  })
                  .batch(5));
}

// expect: chorale: the network takes a field that the batches do not have. Name it in map<...>
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
void use() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const x = std::vector<float>(10);
  trainer.fit(data::from_tensors(x, x, 1).map<Kind>([](auto const&, auto& to) { to[Kind{}].assign(1, 0); }).batch(5));
}

// expect: compiles
template <class Data> void pass(Data const& data) {
  auto live = Live{MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  for ([[maybe_unused]] auto& batch : live.distribute(data)) {}
}
void use() { pass(data::digits(100, 1).map(data::scale).batch(10)); }

// expect: compiles
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
void use() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const x = std::vector<float>(10);
  trainer.fit(data::from_tensors(x, x, 1)
                  .map<Words, Kind>([](auto const&, auto& to) {
                    to[Words{}].assign(5, 0);
                    to[Kind{}].assign(1, 0);
                  })
                  .batch(5));
}

// expect: chorale: the network takes batches of named fields, and the elements of this dataset are not
struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
void use() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const x = std::vector<float>(10);
  trainer.fit(data::from_tensors(x, x, 1).batch(5));
}

// expect: along which batches are dealt out and gradients are added up, and needs the same rows on all its ranks. Split it along another Axis of the Mesh
struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
using Ranks = Axis<"data", 2>;

/// y = x, which all ranks have to know.
struct Alike : nn::Layer<Alike> {
  using axis                             = Ranks;
  static constexpr std::string_view name = "alike";
  static constexpr auto output(auto x) { return x; }
  static void forward(auto& at) { std::ranges::copy(at.x(), at.y().begin()); }
  static void backward(auto& at) { std::ranges::copy(at.dy(), at.dx().begin()); }
};

struct Net : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Ranks, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(Alike{}(words(ids))); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Ranks>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: compiles
struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
using Ranks = Axis<"data", 2>;
struct Net : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Ranks, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Ranks>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}

// expect: compiles
struct Title : Field<int, 40> {};
struct Tags : Field<float, 12> {};

int use(Rows<Title, Tags> const& batch) { return static_cast<int>(batch[Tags{}].size()); }

// expect: chorale: this asks for a field that the batches do not have. Name it in map<...>
struct Title : Field<int, 40> {};
struct Tags : Field<float, 12> {};

int use(Rows<Title> const& batch) { return static_cast<int>(batch[Tags{}].size()); }

// expect: compiles
struct Title : Field<int, 1> {};
struct Body : Field<int, 1> {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Body>([](auto const&, auto& to) { to[Title{}] = to[Body{}] = {1}; }).batch(10);
}

// expect: chorale: a field is named twice in map<...>
struct Title : Field<int, 1> {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Title>([](auto const&, auto& to) { to[Title{}] = {1}; }).batch(10);
}

// expect: compiles
struct Words : Field<int, 5> {};
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags, Words> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags, auto) const { return nn::outputs<Priority>(priority(tags)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: the call operator of this network does not take what nn::Graph<...> names: one parameter for each field, in that order
struct Words : Field<int, 5> {};
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags, Words> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(tags)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Title : Field<int, 1> {};
struct Priority : Field<float, 1> {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Priority>([](auto const&, auto& to) { to[Title{}] = {1}, to[Priority{}] = {0}; }).batch(10);
}

// expect: chorale: map<...> names Fields, and this names a type that is none.
struct Title : Field<int, 1> {};
struct Priority {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Priority>([](auto const&, auto& to) { to[Title{}] = {1}; }).batch(10);
}

// expect: compiles
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<12> a;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(a(a(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a layer is called twice with inputs that would give its variables other shapes. Use two layers
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<4> a;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(a(a(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
