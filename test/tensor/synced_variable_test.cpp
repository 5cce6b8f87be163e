// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/tensor/synced_variable.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;

// What a replica may do is in the type of its handle.
template <Sync sync> using LocalOf = decltype(std::declval<SyncedVariable<float, sync, Aggregation::sum>&>().local());
static_assert(std::is_same_v<LocalOf<Sync::on_read>, WriteHandle<float>>);
static_assert(std::is_same_v<LocalOf<Sync::on_write>, ReadHandle<float>>);
static_assert(std::is_convertible_v<WriteHandle<int>, ReadHandle<int>>);
static_assert(!std::is_constructible_v<WriteHandle<int>, ReadHandle<int>>);
static_assert(!std::is_constructible_v<WriteHandle<int>, int const&> && !std::is_constructible_v<ReadHandle<int>, int>);

namespace {

template <class T, Aggregation aggregation> using OnRead  = SyncedVariable<T, Sync::on_read, aggregation>;
template <class T, Aggregation aggregation> using OnWrite = SyncedVariable<T, Sync::on_write, aggregation>;

/// Runs body(replica, all_reduce) on each of so many replicas, and returns what each returned.
template <class Body> auto on_replicas(int replicas, Body body) {
  using Result     = decltype(body(Rank{}, [](auto) {}));
  auto results     = std::vector<Result>(static_cast<std::size_t>(replicas));
  auto const ended = on_ranks<LocalTransport>(replicas, 0, [&](auto& at, auto&) {
    results[static_cast<std::size_t>(at.rank())] =
        body(at.rank(), [&at](auto x) { RingAllReduce{}.all_reduce(at, x, Op::sum); });
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
  return results;
}

}  // namespace

TEST_CASE("an on_read sum is written alone and read together", "[tensor][synced]") {
  auto const replicas = GENERATE(1, 2, 3, 4);
  auto const read     = on_replicas(replicas, [](Rank replica, auto all_reduce) {
    auto rows = OnRead<std::int64_t, Aggregation::sum>{replica, 1'000'000'000'000'000'001};  // no double is
    for (int step = 0; step <= replica; ++step) rows.local().add(10);
    auto const first = rows.read(all_reduce);
    rows.local().add(1);
    return std::array{first, rows.read(all_reduce)};  // reading twice does not count twice
  });
  for (auto const& [first, second] : read) {
    CHECK(first == 1'000'000'000'000'000'001 + 10 * replicas * (replicas + 1) / 2);
    CHECK(second == first + replicas);
  }
}

TEST_CASE("totals of integers and counts stay exact from one number of replicas to another", "[tensor][synced]") {
  auto const odd = std::int64_t{9'007'199'254'740'993};  // 2^53 + 1: one division makes it even
  auto rows      = odd;
  auto loss      = Sum<double>{0.1, 3};
  for (int const replicas : {3, 4, 1, 2, 4}) {
    auto const totals = on_replicas(replicas, [&](Rank replica, auto all_reduce) {
      auto counted = OnRead<std::int64_t, Aggregation::sum>{replica};
      auto mean    = OnRead<double, Aggregation::mean>{replica};
      counted.restore(rows);
      mean.restore(loss);
      return std::pair{counted.total(all_reduce), mean.total(all_reduce)};
    });
    for (auto const& [integer, sum] : totals) {
      CHECK(integer == odd);
      CHECK((sum.value == 0.1 && sum.count == 3));
    }
    rows = totals.back().first;
    loss = totals.back().second;
  }
}

TEST_CASE("an on_read mean is over rows, however they are dealt out", "[tensor][synced]") {
  auto const replicas = GENERATE(1, 2, 3, 4);
  auto const means    = on_replicas(replicas, [replicas](Rank replica, auto all_reduce) {
    auto mean = OnRead<double, Aggregation::mean>{replica};
    for (int row = 0; row < 10; ++row)
      if (row % replicas == replica) mean.local().add({static_cast<double>(row), 1});  // 0 to 4 rows of difference
    return std::pair{mean.read(all_reduce), mean.local().read().count};
  });
  auto rows           = std::int64_t{0};
  for (auto const& [mean, mine] : means) {
    CHECK(mean == 4.5);
    rows += mine;
  }
  CHECK(rows == 10);  // reading left each with its own
}

TEST_CASE("a mean of no rows is zero", "[tensor][synced]") {
  for (auto const mean : on_replicas(
           2, [](Rank replica, auto all_reduce) { return OnRead<float, Aggregation::mean>{replica}.read(all_reduce); }))
    CHECK(mean == 0.0F);
}

TEST_CASE("only the first replica's value is read or written, bit for bit", "[tensor][synced]") {
  auto const value  = GENERATE(0.3F, -0.0F, std::numeric_limits<float>::infinity(), 1e-45F);
  auto const values = on_replicas(3, [value](Rank replica, auto all_reduce) {
    auto const mine = replica == 0 ? value : std::numeric_limits<float>::quiet_NaN();  // would spoil any sum
    auto read       = OnRead<float, Aggregation::only_first_replica>{replica};
    read.local().assign(mine);
    auto written = OnWrite<float, Aggregation::only_first_replica>{replica, 7.0F};
    written.write(mine, all_reduce);
    return std::array{read.read(all_reduce), written.local().read()};
  });
  for (auto const& [read, written] : values) {
    CHECK((read == value && std::signbit(read) == std::signbit(value)));
    CHECK((written == value && std::signbit(written) == std::signbit(value)));
  }
}

TEST_CASE("an on_write variable has the same bits on every replica after each write", "[tensor][synced]") {
  auto const replicas = GENERATE(1, 2, 3, 4);
  auto const ended    = on_replicas(replicas, [](Rank replica, auto all_reduce) {
    auto mean = OnWrite<float, Aggregation::mean>{replica, 1.0F};
    auto sum  = OnWrite<float, Aggregation::sum>{replica};
    auto same = OnWrite<int, Aggregation::none>{replica, 3};
    auto seen = std::vector<float>{};
    for (int step = 0; step < 20; ++step) {
      auto const mine = Random{3, static_cast<std::uint64_t>(replica)}.uniform(static_cast<std::uint64_t>(step));
      mean.write({mine * static_cast<float>(replica + 1), replica + 1}, all_reduce);  // so many rows of that value
      sum.write(mine + sum.local().read() / 8, all_reduce);
      seen.insert(seen.end(), {mean.local().read(), sum.local().read()});
    }
    same.write_same(same.local().read() + 1);
    seen.push_back(static_cast<float>(same.local().read()));
    return seen;
  });
  for (auto const& seen : ended) CHECK(same_bits(seen, ended[0]));
  auto total = 0.0, rows = 0.0;
  for (Rank replica = 0; replica < replicas; ++replica) {
    total += static_cast<double>(Random{3, static_cast<std::uint64_t>(replica)}.uniform(19)) * (replica + 1);
    rows += replica + 1;
  }
  CHECK(static_cast<double>(ended[0][38]) == Approx(total / rows));
  CHECK(ended[0].back() == 4.0F);
}

TEST_CASE("what is written through a WriteHandle is read through a ReadHandle", "[tensor][synced]") {
  auto rate              = 0.5F;
  auto const write       = WriteHandle<float>{rate};
  ReadHandle<float> read = write;
  write.assign(0.25F);
  write.add(1.0F);
  CHECK(read.read() == 1.25F);
  CHECK(rate == 1.25F);
}
