// SPDX-License-Identifier: Apache-2.0
//
// Models that a strategy's device or stages cannot have: each call of their trainer is part of one error.
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

#include <vector>

using namespace chorale;

struct Chain : nn::Sequential<nn::Input<4>, nn::Dense<8>, nn::Dense<2>> {};
struct Point : Field<float, 4> {};
struct Height : Field<float, 2> {};
struct Net : nn::Graph<Point> {
  nn::Dense<8> first;
  nn::Dense<2> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Height>(last(first(x))); }
};

auto const by_stages = MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()};

void use(auto const& model, auto const& rows) {
  auto trainer = Trainer{model, by_stages, RingAllReduce{}, LocalTransport{}};
  trainer.fit(rows);
  trainer.evaluate(rows);
  trainer.save("weights");
}

// expect: compiles
void run() {
  auto const rows = data::from_fields<Point, Height>(std::vector<float>(16), std::vector<float>(8)).batch(4);
  use(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}), rows);
}

// expect: chorale: a pipeline cuts a network that is derived from nn::Graph
void run() {
  auto const rows = data::from_tensors(std::vector<float>(16), std::vector<float>(8), 4).batch(4);
  use(nn::compile<Chain>(loss::MeanSquaredError{}, optim::SGD{}), rows);
}

// expect: chorale: a pipeline cuts a network that is derived from nn::Graph
void run() {
  auto const rows = data::from_tensors(std::vector<float>(16), std::vector<float>(8), 4).batch(4);
  use(custom_model<BasicBatch<float, float>>(
          {{"slope", {1}}},
          [](auto& step, auto const&) {
            step.gradient(0)[0] += 1;
            return 0.0F;
          },
          optim::SGD{}),
      rows);
}
