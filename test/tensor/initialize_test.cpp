// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/variable.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
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

}  // namespace initialize_test
