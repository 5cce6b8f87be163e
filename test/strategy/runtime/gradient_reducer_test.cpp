// SPDX-License-Identifier: Apache-2.0
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <vector>

namespace lanes_test {

using namespace chorale;

namespace {

constexpr int replicas = 2;

auto live() { return Live{MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}}; }

using Narrow = nn::Sequential<nn::Input<6>, nn::Dense<3>>;
using Wide   = nn::Sequential<nn::Input<6>, nn::Dense<40>, nn::ReLU, nn::Dense<3>>;

/// The sums of one step of a new model whose gradients lie in that memory.
template <class Net>
std::vector<float> sums_in(std::vector<Cpu::block>& memory, auto& strategy) {
  auto copies       = strategy.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), 1);
  auto const data   = tiny::batch<int>(8, 6, 1);
  auto const floats = [](Cpu::block& block) { return Span<float>{reinterpret_cast<float*>(block.data()), block.size() / 4}; };
  for (std::size_t i = 0; i < replicas; ++i) copies[i].place_gradients(floats(memory[i]));
  strategy.run([&](auto& replica, auto& copy) {
    auto [loss, gradients] = replica.value_and_gradient_ahead(copy, data.view());
    replica.all_reduce(gradients);
  }, copies);
  auto const gradients = copies[1].gradients();
  auto sums            = std::vector<float>{};
  for (std::size_t i = 0; i < gradients.plan.size(); ++i)                  // between them lies what was there before
    sums.insert(sums.end(), gradients[i].begin(), gradients[i].end());
  return sums;
}

}  // namespace

TEST_CASE("a model whose gradients lie where those of another one lay is another one", "[strategy]") {
  auto memory = std::vector<Cpu::block>{};
  for (int i = 0; i < replicas; ++i) memory.emplace_back(std::size_t{1} << 16);
  auto again = live(), once = live(), other = live();
  auto const narrow = sums_in<Narrow>(memory, again);                      // the first instances of their types
  auto const wide   = sums_in<Wide>(memory, again);
  auto const more   = sums_in<Narrow>(memory, again);
  REQUIRE(wide.size() > 200);
  CHECK(narrow.size() < wide.size());
  CHECK(wide == sums_in<Wide>(memory, once));
  CHECK(narrow == sums_in<Narrow>(memory, other));
  CHECK(more == narrow);
}

TEST_CASE("a second step before the gradients of the first are reduced is refused", "[strategy]") {
  auto strategy   = live();
  auto copies     = strategy.create(nn::compile<Narrow>(loss::SparseCrossEntropy{}, optim::SGD{}), 1);
  auto const data = tiny::batch<int>(8, 6, 1);
  CHECK_THROWS_WITH(strategy.run([&](auto& replica, auto& copy) {
    replica.value_and_gradient_ahead(copy, data.view());
    replica.value_and_gradient_ahead(copy, data.view());
  }, copies), Catch::Contains("on their way") && Catch::Contains("all_reduce them before its next"));
}

}  // namespace lanes_test
