// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/variable.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace initialize_test {

using namespace chorale;

namespace {

std::vector<float> first_values(Init init, std::vector<int> const& dims, Seed seed = 3, std::uint64_t index = 0) {
  auto spec = VariableSpec{.rank = static_cast<int>(dims.size()), .init = init};
  for (std::size_t i = 0; i < dims.size(); ++i) spec.dims[i] = dims[i];
  auto value = std::vector<float>(spec.size());
  initialize(value, spec, Random{seed, index});
  return value;
}

}  // namespace

TEST_CASE("an orthogonal matrix has orthonormal rows or columns, whichever are fewer", "[tensor][initialize]") {
  auto const [rows, columns] = GENERATE(std::pair{7, 28}, std::pair{28, 7}, std::pair{40, 40}, std::pair{1, 9});
  auto const n = static_cast<std::size_t>(rows), m = static_cast<std::size_t>(columns), few = std::min(n, m);
  auto const w = first_values(Init::orthogonal, {rows, columns});
  for (std::size_t a = 0; a < few; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      auto dot = 0.0;
      for (std::size_t i = 0; i < std::max(n, m); ++i)
        dot += static_cast<double>(n < m ? w[a * m + i] : w[i * m + a]) *
               static_cast<double>(n < m ? w[b * m + i] : w[i * m + b]);
      CHECK(std::abs(dot - (a == b ? 1 : 0)) < 1e-6);
    }
}

TEST_CASE("an orthogonal kernel of more dimensions is a matrix of its last one", "[tensor][initialize]") {
  CHECK(first_values(Init::orthogonal, {3, 3, 2, 8}) == first_values(Init::orthogonal, {18, 8}));
}

TEST_CASE("an orthogonal matrix is a function of seed and index", "[tensor][initialize]") {
  auto const w = first_values(Init::orthogonal, {5, 20});
  CHECK(first_values(Init::orthogonal, {5, 20}) == w);
  CHECK(first_values(Init::orthogonal, {5, 20}, 4) != w);
  CHECK(first_values(Init::orthogonal, {5, 20}, 3, 1) != w);
}

TEST_CASE("the bias of an LSTM begins with ones for the gate that forgets", "[tensor][initialize]") {
  CHECK(first_values(Init::unit_forget, {8}) == std::vector<float>{0, 0, 1, 1, 0, 0, 0, 0});
}

TEST_CASE("the parts of a split variable are those of the whole", "[tensor][initialize][axis]") {
  auto const init   = GENERATE(Init::glorot_uniform, Init::he_normal, Init::unit_forget, Init::zeros, Init::ones);
  auto const blocks = GENERATE(1, 3);
  auto const dim    = GENERATE(0, 1, 2);
  auto spec         = VariableSpec{.dims = {12, 24, 36}, .rank = 3, .init = init, .fan_in = 5, .fan_out = 7};
  auto whole        = std::vector<float>(spec.size());
  initialize(whole, spec, Random{Seed{3}, 1});
  for (int const parts : {1, 2, 4}) {
    auto part = spec;
    part.dims[static_cast<std::size_t>(dim)] /= parts;
    part.split = {.dim = dim, .parts = parts, .along = "tensor", .blocks = blocks};
    CHECK(whole_dims(part) == spec.dims);
    auto joined = std::vector<float>(whole.size(), -1.0F);
    auto value  = std::vector<float>(part.size());
    auto index  = std::array<int, 3>{};
    for (int p = 0; p < parts; ++p) {
      initialize(value, part, Random{Seed{3}, 1}, p);
      auto k = std::size_t{0};
      for (index[0] = 0; index[0] < part.dims[0]; ++index[0])
        for (index[1] = 0; index[1] < part.dims[1]; ++index[1])
          for (index[2] = 0; index[2] < part.dims[2]; ++index[2]) {
            auto at         = index;
            auto& split     = at[static_cast<std::size_t>(dim)];
            auto const each = part.dims[static_cast<std::size_t>(dim)] / blocks;
            split           = split / each * each * parts + p * each + split % each;
            joined[static_cast<std::size_t>((at[0] * 24 + at[1]) * 36 + at[2])] = value[k++];
          }
    }
    CHECK(joined == whole);
  }
}

TEST_CASE("a split variable cannot begin orthogonal", "[tensor][initialize][axis]") {
  auto const spec = VariableSpec{.name  = "kernel",
                                 .dims  = {4, 4},
                                 .rank  = 2,
                                 .init  = Init::orthogonal,
                                 .split = {.dim = 1, .parts = 2, .along = "tensor"}};
  auto value      = std::vector<float>(spec.size());
  CHECK_THROWS_WITH(initialize(value, spec, Random{Seed{1}, 0}),
                    Catch::Contains("kernel is split over axis tensor, and cannot begin orthogonal"));
}

}  // namespace initialize_test
