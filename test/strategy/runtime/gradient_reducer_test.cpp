// SPDX-License-Identifier: Apache-2.0
#include "test/support/tiny.hpp"

#include <chorale/strategy/runtime/row_numbers.hpp>
#include <chorale/strategy/runtime/rows_apart.hpp>
#include <chorale/tensor/step_header.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lanes_test {

using namespace chorale;

namespace {

constexpr int replicas = 2;

auto live() { return Live{MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}}; }

using Narrow = nn::Sequential<nn::Input<6>, nn::Dense<3>>;
using Wide   = nn::Sequential<nn::Input<6>, nn::Dense<40>, nn::ReLU, nn::Dense<3>>;

/// The sums of one step of a new model whose gradients lie in that memory.
template <class Net> std::vector<float> sums_in(std::vector<Cpu::block>& memory, auto& strategy) {
  auto copies       = strategy.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), 1);
  auto const data   = tiny::batch<int>(8, 6, 1);
  auto const floats = [](Cpu::block& block) {
    return Span<float>{reinterpret_cast<float*>(block.data()), block.size() / 4};
  };
  for (std::size_t i = 0; i < replicas; ++i) copies[i].place_gradients(floats(memory[i]));
  strategy.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient_ahead(copy, data.view());
        replica.all_reduce(gradients);
      },
      copies);
  auto const gradients = copies[1].gradients();
  auto sums            = std::vector<float>{};
  for (std::size_t i = 0; i < gradients.plan.size(); ++i)  // between them lies what was there before
    sums.insert(sums.end(), gradients[i].begin(), gradients[i].end());
  return sums;
}

}  // namespace

TEST_CASE("a model whose gradients lie where those of another one lay is another one", "[strategy]") {
  auto memory = std::vector<Cpu::block>{};
  for (int i = 0; i < replicas; ++i) memory.emplace_back(std::size_t{1} << 16);
  auto again = live(), once = live(), other = live();
  auto const narrow = sums_in<Narrow>(memory, again);  // the first instances of their types
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
  CHECK_THROWS_WITH(strategy.run(
                        [&](auto& replica, auto& copy) {
                          replica.value_and_gradient_ahead(copy, data.view());
                          replica.value_and_gradient_ahead(copy, data.view());
                        },
                        copies),
                    Catch::Contains("on their way") && Catch::Contains("all_reduce them before its next"));
}

namespace {

/// A replica of two whose peer says what a test wants.
struct OneOfTwo {
  Rank rank;
  std::vector<std::vector<std::byte>> said{};
  std::size_t next = 0;

  Rank id() const { return rank; }
  int num_replicas() const { return 2; }
  void exchange(Rank, ConstBytes, Bytes theirs) {
    if (theirs.empty()) return;
    if (next == said.size() || said[next].size() != theirs.size()) throw PeerLost{1 - rank, "the other one is gone"};
    std::ranges::copy(said[next++], theirs.begin());
  }
  template <class T> void say(std::vector<T> const& values) {
    auto const bytes = std::as_bytes(Span<T const>{values});
    said.emplace_back(bytes.begin(), bytes.end());
  }
};

}  // namespace

TEST_CASE("rows that another rank has counted leave a place for one's own, or are a fault", "[strategy]") {
  auto const numbers = [](Rank rank, std::uint64_t said) {
    auto replica = OneOfTwo{rank};
    replica.say(std::vector{said});
    return detail::number_rows(replica, 5).first;
  };
  CHECK(numbers(0, 7) == 0);
  CHECK(numbers(1, 7) == 7);
  CHECK_THROWS_WITH(numbers(1, ~std::uint64_t{2}),
                    Catch::Contains("rank 0 tells rank 1 of 18446744073709551613 rows in a step"));
}

TEST_CASE("rows that a peer has changed are rows of the table before one of them is moved", "[strategy]") {
  constexpr std::size_t rows = 10, width = 2;
  auto spec            = VariableSpec{.name = "table", .dims = {10, 2}, .rank = 2};
  spec.by_rows         = true;
  auto planned         = std::array<PlannedVariable, 1>{};
  planned[0].spec      = spec;
  planned[0].name      = Name{"embedding/embeddings"};
  planned[0].size      = rows * width;
  auto values          = std::vector<float>(rows * width, 1.0F);
  auto tables          = std::vector<RowGradients>{{0, rows, width}};
  auto flat            = std::vector<float>(plan::header + plan::trailer);
  auto const variables = Variables{values, planned};
  auto gradients       = Gradients{flat, planned, {}};
  gradients.tables     = tables;
  auto const meets     = [&](std::uint64_t n, std::vector<std::uint32_t> const& changed, std::vector<float> const& to) {
    auto replica = OneOfTwo{0};
    replica.say(std::vector{n});
    replica.say(changed);
    replica.say(to);
    RowsApart{}.meet(replica, 1, variables, gradients);
  };
  meets(2, {9, 0}, {3, 3, 5, 5});
  CHECK((values[18] == 2 && values[0] == 3 && values[2] == 1));
  CHECK_THROWS_WITH(meets(1, {10}, {3, 3}), Catch::Contains("rank 1 sends row 10 of embedding/embeddings, which has 10 "
                                                            "rows"));
  CHECK_THROWS_WITH(meets(11, {}, {}), Catch::Contains("rank 1 announces 11 rows of embedding/embeddings, which"));
}

TEST_CASE("a sum of ranks' numbers is an index only where it can be one", "[strategy]") {
  CHECK(index_below(3, 4) == 3);
  for (auto const none : {4.0F, -1.0F, std::nanf(""), std::numeric_limits<float>::infinity()})
    CHECK(index_below(none, 4) == 4);
}

}  // namespace lanes_test
