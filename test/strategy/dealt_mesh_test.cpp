// SPDX-License-Identifier: Apache-2.0
//
// Tables and experts along the axis along which batches are dealt out, against one device.
#include "test/support/folder.hpp"

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/parallel/experts.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/nn/parallel/sharded_tables.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/trainer/trainer.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace dealt_mesh_test {

using namespace chorale;

namespace {

struct Users : Field<int, 3> {};
struct Items : Field<int, 2> {};
struct Score : Field<float, 3> {};

template <class Tables, class Experts> struct Net : nn::Graph<Users, Items> {
  nn::ShardedEmbeddingBag<Tables, 11, 6> users;
  nn::ShardedTables<Tables, 6, nn::TableRows<7>, nn::Bag::sum> items;
  nn::Experts<Experts, 6, 5, nn::Capacity<75>> experts;
  nn::Dense<3> score;
  constexpr auto operator()(auto user, auto item) const {
    auto const x = users(user) + items(item);
    return nn::outputs<Score>(score(x + experts(x)));
  }
};

/// Batches of 13 rows, and one of 2, of which some ranks have none.
auto rows() {
  auto const n      = std::size_t{41};
  auto const random = Random{Seed{2}, 0};
  auto users = std::vector<int>(3 * n), items = std::vector<int>(2 * n);
  auto scores = std::vector<float>(3 * n);
  for (std::size_t i = 0; i < users.size(); ++i) users[i] = static_cast<int>(random.uniform(i) * 11);
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = static_cast<int>(random.uniform(900 + i) * 7);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = random.uniform(1900 + i, -1.0F, 1.0F);
  return data::from_fields<Users, Items, Score>(users, items, scores).batch(13);
}

struct Learned {
  std::map<std::string, std::vector<float>> variables{};
  double loss = 0, evaluated = 0;
  std::vector<float> outputs{};
};

/// Trains, writes whole variables, goes on from them, and writes again.
template <class Tables, class Experts, class S, class R> Learned learned(S strategy, R reduce) {
  auto const folder = test::Folder{};
  auto const model  = nn::compile<Net<Tables, Experts>>(loss::MeanSquaredError{}, optim::Adam{.learning_rate = 0.02F});
  auto trainer      = Trainer{model, strategy, reduce, LocalTransport{}, 7};
  trainer.fit(rows(), {.epochs = 2, .show = Show::nothing});
  trainer.save(folder / "first");
  trainer.load(folder / "first");
  auto const history = trainer.fit(rows(), {.epochs = 1, .show = Show::nothing});
  trainer.save(folder / "last");
  auto const file = SafetensorsFile::read(folder / "last");
  auto all        = Learned{.loss = history.back().scores.loss(), .evaluated = trainer.evaluate(rows()).loss()};
  for (auto const& tensor : file.tensors()) {
    auto const* const x = reinterpret_cast<float const*>(tensor.bytes.data());
    all.variables[std::string{tensor.name}].assign(x, x + tensor.bytes.size() / sizeof(float));
  }
  auto const y = trainer.predict(rows());
  all.outputs.assign(y.values.begin(), y.values.end());
  return all;
}

double apart(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  auto worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst;
}

using Exact                  = Reproducible<8>;
template <int P> using Data  = Axis<"data", P>;
template <int P> using Apart = Axis<"experts", P>;

}  // namespace

TEST_CASE("tables and experts along the data axis learn the bits of one device", "[strategy][mesh][tables][experts]") {
  auto const one  = learned<Data<1>, Data<1>>(OneDeviceStrategy{Cpu::logical(1)[0]}, Exact{});
  auto const many = learned<Data<3>, Data<3>>(MeshStrategy{Mesh<Data<3>>{Cpu::logical(3)}}, Exact{});
  CHECK(one.variables.size() == 10);
  for (auto const& [name, values] : one.variables) {
    INFO(name);
    CHECK(many.variables.at(name) == values);
  }
  CHECK(many.loss == one.loss);
  CHECK(many.evaluated == Approx(one.evaluated));
  CHECK(apart(many.outputs, one.outputs) < 1e-5);
}

TEST_CASE("tables and experts go with buckets that leave during backward", "[strategy][mesh][tables][experts]") {
  auto const one  = learned<Data<1>, Data<1>>(OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{});
  auto const many = learned<Data<3>, Data<3>>(MeshStrategy{Mesh<Data<3>>{Cpu::logical(3)}}, RingAllReduce{});
  for (auto const& [name, values] : one.variables) {
    INFO(name);
    CHECK(apart(many.variables.at(name), values) < 1e-4);
  }
  CHECK(one.variables.at("experts/dropped") == many.variables.at("experts/dropped"));
  CHECK(*std::ranges::max_element(one.variables.at("experts/dropped")) > 0);
}

TEST_CASE("a checkpoint of tables and experts goes on with another number of ranks",
          "[strategy][mesh][tables][experts]") {
  auto const folder = test::Folder{};
  auto const go_on  = [&]<int P>(std::integral_constant<int, P>, auto strategy, int epochs, std::string const& where) {
    auto const model =
        nn::compile<Net<Data<P>, Data<P>>>(loss::MeanSquaredError{}, optim::Adam{.learning_rate = 0.02F});
    auto trainer = Trainer{model, strategy, Exact{}, LocalTransport{}, 7};
    trainer.fit(rows(), {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder / where}});
    trainer.save(folder / (where + ".last"));
    return SafetensorsFile::read(folder / (where + ".last"));
  };
  auto const one   = [] { return OneDeviceStrategy{Cpu::logical(1)[0]}; };
  auto const three = [] { return MeshStrategy{Mesh<Data<3>>{Cpu::logical(3)}}; };
  auto const same  = [](SafetensorsFile const& a, SafetensorsFile const& b) {
    auto equal = a.tensors().size() == b.tensors().size();
    for (std::size_t i = 0; equal && i < a.tensors().size(); ++i)
      equal =
          a.tensors()[i].name == b.tensors()[i].name && std::ranges::equal(a.tensors()[i].bytes, b.tensors()[i].bytes);
    return equal;
  };
  auto const whole = go_on(std::integral_constant<int, 1>{}, one(), 3, "whole");
  go_on(std::integral_constant<int, 3>{}, three(), 1, "parts");
  go_on(std::integral_constant<int, 1>{}, one(), 2, "parts");
  CHECK(same(go_on(std::integral_constant<int, 3>{}, three(), 3, "parts"), whole));
}

TEST_CASE("tables along the data axis, and experts along another one, learn the bits of one device",
          "[strategy][mesh][tables][experts]") {
  auto const one  = learned<Data<1>, Apart<1>>(OneDeviceStrategy{Cpu::logical(1)[0]}, Exact{});
  auto const many = learned<Data<2>, Apart<2>>(MeshStrategy{Mesh<Data<2>, Apart<2>>{Cpu::logical(4)}}, Exact{});
  for (auto const& [name, values] : one.variables) {
    INFO(name);
    CHECK(many.variables.at(name) == values);
  }
  CHECK(many.loss == one.loss);
  auto const same_rows = learned<Apart<2>, Apart<2>>(MeshStrategy{Mesh<Data<2>, Apart<2>>{Cpu::logical(4)}}, Exact{});
  CHECK(same_rows.variables == one.variables);  // rows of a part are gathered along data
}

}  // namespace dealt_mesh_test
