// SPDX-License-Identifier: Apache-2.0
//
// The same examples for every number of ranks and threads, also when a run stops and goes on under another number.
#include "folder.hpp"
#include "sources.hpp"

#include <chorale/data/formats/tfrecord.hpp>
#include <chorale/strategy/runtime/distributed_batches.hpp>
#include <chorale/trainer/training_loop.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

constexpr int rows = 61, per_batch = 8, steps_per_pass = 8;  // 61 rows: the last batch has 5

/// One row as a replica sees it: which one, and what the random change made of it.
using Row   = std::pair<int, float>;
/// The rows of each step, by the replicas in their order.
using Steps = std::vector<std::vector<Row>>;

/// What Live deals batches out by, without a transport.
struct World {
  int ranks;

  template <class D> auto distribute(D const& batches, int pass) const {
    auto all = std::vector<Rank>(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    auto stream = batches.stream(static_cast<std::size_t>(pass));
    return DistributedBatches<decltype(stream), typename D::element>{std::move(stream), ranks, std::move(all), 0};
  }
};

std::vector<Row> rows_of(PerReplica<Batch> const& shares, int ranks) {
  auto all   = std::vector<Row>{};
  auto least = std::size_t{rows}, most = std::size_t{0};
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    auto const& share = shares[rank];
    least = std::min(least, share.rows), most = std::max(most, share.rows);
    for (std::size_t i = 0; i < share.rows; ++i) all.emplace_back(share.y[i], share.x[i]);
  }
  CHECK(most - least <= 1);
  return all;
}

/// A run of two epochs from where (pass, batch) stands, for at most so many steps.
struct Cursor {
  int pass;
  std::size_t batch;
};
template <class D> Cursor run(World const& world, D const& data, Cursor from, std::size_t steps, Steps& to) {
  auto epochs = EpochBatches<World, D>{world, data, 0, from.pass};
  for (auto pass = from.pass; pass < 2; ++pass) {
    if (pass == from.pass) epochs.resume(from.batch, pass, from.batch);
    else epochs.begin(pass);
    for (;; --steps) {
      if (steps == 0) return {epochs.pass(), epochs.batch()};
      auto* const shares = epochs.next();
      if (shares == nullptr) break;
      to.push_back(rows_of(*shares, world.ranks));
    }
  }
  return {2, 0};
}

/// From files of records to batches, by so many threads in each stage.
auto pipeline(std::vector<std::filesystem::path> const& files, std::size_t threads) {
  auto const parse = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(1, 0), y.assign(1, std::to_integer<int>(row.x[0]));
  };
  auto const augment = [](auto const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) {
    x.assign(1, at.random(Seed{3}).uniform(0)), y.assign(row.y.begin(), row.y.end());
  };
  return data::tfrecords(files, {}, {.cycle = 2, .block = 3, .shuffle = Seed{1}}, threads)
      .map(parse, {.threads = threads})
      .shuffle(20, Seed{2})
      .map(augment, {.threads = threads})
      .batch(per_batch)
      .prefetch(threads);
}

std::vector<std::filesystem::path> written(sources::Folder const& in) {
  auto files = std::vector<std::filesystem::path>{};
  for (int f = 0; f < 3; ++f) {
    auto to         = data::TfRecordWriter{files.emplace_back(in.path() / std::to_string(f))};
    auto const mine = share(rows, f, 3);
    for (auto i = mine.begin; i < mine.end; ++i) to.write(std::array{static_cast<std::byte>(i)});
    to.close();
  }
  return files;
}

}  // namespace

TEST_CASE("two epochs give the same rows in the same order to any number of ranks and threads", "[data][world]") {
  auto const folder = sources::Folder{};
  auto const files  = written(folder);
  auto expected     = Steps{};
  run(World{1}, pipeline(files, 1), {0, 0}, 1'000, expected);
  REQUIRE(expected.size() == 2 * steps_per_pass);
  CHECK(expected.front() != expected.at(steps_per_pass));
  for (int epoch = 0; epoch < 2; ++epoch) {  // each row once: none padded, twice or lost
    auto seen = std::vector<int>{};
    for (std::size_t step = 0; step < steps_per_pass; ++step)
      for (auto const& [row, noise] : expected[static_cast<std::size_t>(epoch) * steps_per_pass + step])
        seen.push_back(row);
    std::sort(seen.begin(), seen.end());
    CHECK(seen == sources::in_order(rows));
  }
  for (int const ranks : {1, 2, 3, 4, 8})
    for (std::size_t const threads : {1U, 2U, 3U, 8U}) {
      CAPTURE(ranks, threads);
      auto steps = Steps{};
      run(World{ranks}, pipeline(files, threads), {0, 0}, 1'000, steps);
      CHECK(steps == expected);
    }
}

TEST_CASE("a run that stops at any step and goes on under other ranks and threads sees what one run sees",
          "[data][world]") {
  auto const folder = sources::Folder{};
  auto const files  = written(folder);
  auto expected     = Steps{};
  run(World{1}, pipeline(files, 1), {0, 0}, 1'000, expected);
  auto const worlds = std::array{1, 2, 3, 4, 8};
  for (std::size_t stop = 0; stop <= 2 * steps_per_pass; ++stop)
    for (std::size_t w = 0; w < worlds.size(); ++w) {
      auto const before = worlds[w], after = worlds[(w + 1 + stop) % worlds.size()];
      auto const threads = 1 + stop % 3;
      CAPTURE(stop, before, after, threads);
      auto steps        = Steps{};
      auto const cursor = run(World{before}, pipeline(files, threads), {0, 0}, stop, steps);
      CHECK(steps.size() == stop);
      run(World{after}, pipeline(files, 4 - threads), cursor, 1'000, steps);
      CHECK(steps == expected);
    }
}
