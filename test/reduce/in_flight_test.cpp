// SPDX-License-Identifier: Apache-2.0
// What every ReduceAlgorithm promises about operations that follow one another, or are under way at once.
#include "test/support/cases.hpp"

#include <catch2/catch.hpp>

#include <array>

using namespace chorale;
using namespace chorale::test;

TEMPLATE_LIST_TEST_CASE("many steps with one tag do not mix", "[reduce][contract]", Cases) {
  auto const ranks = GENERATE(2, 4);
  auto const ended = on_ranks<typename TestType::transport>(ranks, 64, [](auto& at, auto& x) {
    for (int step = 0; step < 300; ++step) {
      for (auto& value : x) value = static_cast<float>(step % 7);
      typename TestType::reduce{}.all_reduce(at, x, Op::sum);
      for (auto const value : x)
        if (value != static_cast<float>(step % 7 * at.size())) throw Error{"wrong sum in step " + std::to_string(step)};
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

TEMPLATE_LIST_TEST_CASE("operations in flight do not block one another, whichever is asked first", "[reduce][contract]",
                        Cases) {
  constexpr std::size_t operations = 5, n = 501;
  auto const ranks      = GENERATE(2, 3, 8);
  auto const ended      = on_ranks<typename TestType::transport>(ranks, operations * n, [&](auto& at, auto& x) {
    auto const reduce = typename TestType::reduce{};
    auto flying       = std::array<decltype(reduce.start(at, x, Op::sum, Tag{})), operations>{};
    for (unsigned i = 0; i < operations; ++i) flying[i] = reduce.start(at, x.subspan(i * n, n), Op::sum, Tag{3 * i});
    auto const odd = at.rank() % 2 == 1;  // odd ranks want the last first
    for (std::size_t done = 0; done < operations; ++done) {
      auto const wanted = odd ? operations - 1 - done : done;
      spin_until([&] {
        for (auto& other : flying) other.poll();
        return flying[wanted].poll();
      });
    }
  });
  auto const one_by_one = on_ranks<typename TestType::transport>(ranks, operations * n, [](auto& at, auto& x) {
    for (std::size_t i = 0; i < operations; ++i)
      typename TestType::reduce{}.all_reduce(at, x.subspan(i * n, n), Op::sum);
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, one_by_one[0].x));
  }
}
