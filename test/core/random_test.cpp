// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/random.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

using namespace chorale;

TEST_CASE("random words are those of Philox4x32-10", "[core][golden]") {
  // Known answers of the Random123 distribution: counter and key all zeros, then all ones.
  CHECK(Random{Seed{0}, 0}.words(0) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  auto const most = ~std::uint64_t{0};
  CHECK(Random{Seed{most}, most}.words(most) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("a random number depends on seed, stream and index, and on nothing else", "[core]") {
  CHECK(Random{1, 2}.uniform(3) == Random{1, 2}.uniform(3));
  CHECK(Random{1, 2}.uniform(3) != Random{2, 2}.uniform(3));
  CHECK(Random{1, 2}.uniform(3) != Random{1, 3}.uniform(3));
  CHECK(Random{1, 2}.uniform(3) != Random{1, 2}.uniform(4));
}

TEST_CASE("uniform and normal numbers have the right mean and spread", "[core]") {
  auto const random = Random{7, 0};
  double sum = 0, squares = 0, normal_sum = 0, normal_squares = 0;
  constexpr int n = 100'000;
  for (int i = 0; i < n; ++i) {
    auto const u = random.uniform(static_cast<std::uint64_t>(i));
    auto const z = random.normal(static_cast<std::uint64_t>(i));
    REQUIRE((u >= 0.0F && u < 1.0F));
    sum += u, squares += u * u, normal_sum += z, normal_squares += z * z;
  }
  CHECK(sum / n == Approx(0.5).margin(0.005));  // five standard errors: 5 · 0.29 / sqrt(n)
  CHECK(squares / n == Approx(1.0 / 3).margin(0.005));
  CHECK(normal_sum / n == Approx(0.0).margin(0.016));
  CHECK(normal_squares / n == Approx(1.0).margin(0.023));
}

TEST_CASE("below reaches every value of its range and no other", "[core]") {
  auto seen = std::vector<int>(7);
  for (std::uint64_t i = 0; i < 700; ++i) ++seen.at(Random{3, 1}.below(i, 7));
  CHECK(*std::min_element(seen.begin(), seen.end()) > 50);
}

TEST_CASE("shuffle gives a permutation that its seed fixes", "[core]") {
  auto a = std::vector<int>(100);
  std::iota(a.begin(), a.end(), 0);
  auto b = a, sorted = a;
  shuffle(a, Random{1, 0});
  shuffle(b, Random{1, 0});
  CHECK(a == b);
  CHECK(a != sorted);
  std::sort(a.begin(), a.end());
  CHECK(a == sorted);
}

TEST_CASE("shuffle gives every order of its values, the one that they had too", "[core]") {
  auto orders = std::set<std::vector<int>>{};
  for (std::uint64_t stream = 0; stream < 100; ++stream) {
    auto values = std::vector<int>{0, 1, 2};
    shuffle(values, Random{1, stream});
    orders.insert(values);
  }
  CHECK(orders.size() == 6);
}
