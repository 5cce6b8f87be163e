// SPDX-License-Identifier: Apache-2.0
//
// bucket_by_sequence_length: rows of similar lengths in a batch.
#include "test/data/fields.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <vector>

using namespace chorale;
using namespace sources;

namespace {

struct Got {
  std::vector<int> numbers;
  std::size_t width;
  friend bool operator==(Got const&, Got const&) = default;
};

template <class D> std::vector<Got> batches_of(D const& dataset, std::size_t epoch = 0) {
  auto all    = std::vector<Got>{};
  auto stream = dataset.stream(epoch);
  for (typename D::element e; stream.next(e);) {
    for (std::size_t i = 0; i < e.rows; ++i) expect_row(e, i);
    all.push_back({{e[Number{}].begin(), e[Number{}].end()}, e.width(Word{})});
  }
  return all;
}

auto bucketed(auto const& rows, data::Remainder remainder = data::Remainder::keep) {
  return rows.bucket_by_sequence_length(Word{}, {.boundaries = {2, 5}, .rows = {3, 2, 2}, .remainder = remainder});
}

}  // namespace

TEST_CASE("a batch has rows of one bucket of lengths, and comes when that is full", "[data][fields][bucket]") {
  // words of 0 1 2 3 4 5 6 7 8 9 10 11 have lengths 0 1 2 3 0 1 2 3 0 1 4 6
  auto const want = std::vector<Got>{{{2, 3}, 3}, {{0, 1, 4}, 1}, {{6, 7}, 3}, {{5, 8, 9}, 1}, {{10}, 4}, {{11}, 6}};
  CHECK(batches_of(bucketed(words(12))) == want);
  CHECK(batches_of(bucketed(words(12).cache())) == want);  // views of stable rows
  CHECK(batches_of(bucketed(words(12)).prefetch(2)) == want);
  auto const full = std::vector<Got>{want.begin(), want.begin() + 4};
  CHECK(batches_of(bucketed(words(12), data::Remainder::drop)) == full);
  CHECK(batches_of(bucketed(words(0))).empty());
}

TEST_CASE("every row comes once, in an order of the epoch", "[data][fields][bucket]") {
  auto const dataset = bucketed(words(500).shuffle(100));
  auto const a = batches_of(dataset, 0), again = batches_of(dataset, 0), b = batches_of(dataset, 1);
  CHECK(a == again);
  CHECK(a != b);
  auto seen = std::vector<int>(500);
  for (auto const& batch : a)
    for (auto const number : batch.numbers) ++seen[static_cast<std::size_t>(number)];
  CHECK(seen == std::vector<int>(500, 1));
  auto skipped = batches_of(dataset.skip(7));  // where a run resumes
  CHECK(skipped == std::vector<Got>{a.begin() + 7, a.end()});
}

TEST_CASE("what describes buckets is compared, and wrong ones are one sentence", "[data][fields][bucket]") {
  auto lines = std::vector<std::string>{};
  data::describe(bucketed(words(3)), lines);
  CHECK(lines.back() == "bucket_by_sequence_length sources::Word keep 2 5 rows 3 2 2");
  CHECK_THROWS_WITH(words(3).bucket_by_sequence_length(Word{}, {.boundaries = {2}, .rows = {4}}),
                    Catch::Matchers::Contains("buckets with 1 boundaries need 2 sizes of batches, got 1"));
  CHECK_THROWS_WITH(words(3).bucket_by_sequence_length(Word{}, {.boundaries = {4, 4}, .rows = {4, 4, 4}}),
                    Catch::Matchers::Contains("boundaries of buckets increase, but 4 comes after 4"));
  CHECK_THROWS_WITH(words(3).bucket_by_sequence_length(Word{}, {.boundaries = {}, .rows = {0}}),
                    Catch::Matchers::Contains("a batch needs at least one row, got 0"));
}
