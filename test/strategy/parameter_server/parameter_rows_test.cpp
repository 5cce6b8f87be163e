// SPDX-License-Identifier: Apache-2.0
// Single rows of a table, sums of epochs, the cache and closures of a parameter server.
#include "test/strategy/parameter_server/parameter_job.hpp"

#include <chorale/optim/lion.hpp>
#include <chorale/optim/rmsprop.hpp>
#include <chorale/transport/counting.hpp>

#include <catch2/catch.hpp>

#include <atomic>

namespace parameter_rows_test {

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t table_rows = 1'000, width = 24, n = table_rows * width + 80;

/// A table in as many parts as there are servers, and something else behind it on the last one.
parameter_server::ShardLayout table_shards(int workers, int servers) {
  auto runs = std::vector<std::vector<Range>>(static_cast<std::size_t>(servers));
  for (int s = 0; s < servers; ++s) {
    auto const rows = share(table_rows, s, servers);
    runs[static_cast<std::size_t>(s)].push_back({plan::header + rows.begin * width, plan::header + rows.end * width});
  }
  runs.back().push_back({plan::header + table_rows * width, plan::header + n});
  return {workers, std::move(runs)};
}

constexpr auto table = parameter_server::RowTable{plan::header, table_rows, width};

/// 50 rows of a step, some of them twice or more.
template <class Index> std::vector<Index> some_rows(int worker, int step) {
  auto const random = Random{5, static_cast<std::uint64_t>(100 * worker + step)};
  auto rows         = std::vector<Index>(50);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<Index>(random.below(i, i % 2 == 0 ? 20 : table_rows));
  return rows;
}

/// Small and whole, so that a sum is the same in any order.
std::vector<float> row_gradients(int worker, int step) {
  auto const random = Random{6, static_cast<std::uint64_t>(100 * worker + step)};
  auto values       = std::vector<float>(50 * width);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.below(i, 17)) - 8.0F;
  return values;
}

template <class Index, class C> ParameterResult train_rows(int workers, int servers, C consistency) {
  auto const initial = initial_values(n);
  return run_parameters(LocalTransport{}, table_shards(workers, servers), consistency,
                        optim::SGD{.learning_rate = 0.125F, .momentum = 0.5F}, initial, [&](auto& client, int worker) {
                          auto got = std::vector<float>(50 * width);
                          for (int step = 0; step < 10; ++step) {
                            auto const rows = some_rows<Index>(worker, step);
                            auto const g    = row_gradients(worker, step);
                            client.pull_rows(table, Span<Index const>{rows}, got);
                            client.push_rows(table, Span<Index const>{rows}, Span<float const>{g}, 4, 0);
                          }
                        });
}

/// The same, row by row: those that are not in a step keep value and momentum.
std::vector<float> rows_by_hand(int workers) {
  auto values = initial_values(n), velocity = std::vector<float>(values.size());
  for (int step = 0; step < 10; ++step) {
    auto sums = std::vector<float>(values.size());
    auto hit  = std::vector<bool>(table_rows);
    for (int worker = 0; worker < workers; ++worker) {
      auto const rows = some_rows<std::uint32_t>(worker, step);
      auto const g    = row_gradients(worker, step);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        hit[rows[i]] = true;
        for (std::size_t k = 0; k < width; ++k) sums[plan::header + rows[i] * width + k] += g[i * width + k];
      }
    }
    for (std::size_t r = 0; r < table_rows; ++r)
      for (std::size_t i = plan::header + r * width; hit[r] && i < plan::header + (r + 1) * width; ++i) {
        velocity[i] = 0.5F * velocity[i] - 0.125F * (sums[i] * (1.0F / static_cast<float>(4 * workers)));
        values[i] += velocity[i];
      }
  }
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("rows that are pushed change, with duplicates added up, and no others", "[strategy][ps]",
                   std::uint32_t, std::uint64_t) {
  for (int const workers : {1, 2, 3})
    for (int const servers : {1, 2, 3}) {
      auto const run = train_rows<TestType>(workers, servers, Synchronous{});
      CHECK(all_errors(run) == "");
      CHECK(same_bits(run.values, rows_by_hand(workers)));
      for (auto const& ledger : run.ledgers) CHECK(ledger.applied == static_cast<std::uint64_t>(10 * workers));
    }
}

TEMPLATE_TEST_CASE("all rows of a table at once are a dense push, with an optimizer of some slots", "[strategy][ps]",
                   optim::Adam, optim::RMSprop, optim::Lion) {
  auto const initial = initial_values(n);
  auto const train   = [&](bool by_rows) {
    return run_parameters(
        LocalTransport{}, table_shards(1, 2), Asynchronous{}, TestType{}, initial, [&](auto& client, int) {
          auto gradients = std::vector<float>(flat_size(n)), values = initial;
          auto rows = std::vector<std::uint64_t>(table_rows);
          for (std::size_t r = 0; r < table_rows; ++r) rows[r] = table_rows - 1 - r;  // from the last to the first
          for (int step = 0; step < 5; ++step) {
            fill_gradient(gradients, 0, step, 4);
            std::fill_n(gradients.begin() + plan::header + table_rows * width, 80, 0.0F);
            if (!by_rows) {
              client.push(gradients_in(gradients), 0);
              continue;
            }
            auto reversed = std::vector<float>{};
            for (auto const r : rows) {
              auto const first = gradients.begin() + static_cast<std::ptrdiff_t>(plan::header + r * width);
              reversed.insert(reversed.end(), first, first + width);
            }
            client.push_rows(table, Span<std::uint64_t const>{rows}, Span<float const>{reversed}, 4, 0);
          }
        });
  };
  auto const dense = train(false), rows = train(true);
  CHECK(all_errors(dense) + all_errors(rows) == "");
  CHECK(same_bits(dense.values, rows.values));
  CHECK_FALSE(same_bits(dense.values, initial));
}

TEST_CASE("rows are pulled in the order asked for, whoever has them", "[strategy][ps]") {
  auto const servers = GENERATE(1, 2);
  auto const initial = initial_values(n);
  auto const run     = run_parameters(LocalTransport{}, table_shards(1, servers), Asynchronous{}, optim::SGD{}, initial,
                                      [&](auto& client, int) {
                                    auto const rows = std::vector<std::uint32_t>{999, 0, 500, 499, 0, 501};
                                    auto got        = std::vector<float>(rows.size() * width);
                                    client.pull_rows(table, Span<std::uint32_t const>{rows}, got);
                                    for (std::size_t i = 0; i < rows.size(); ++i)
                                      for (std::size_t k = 0; k < width; ++k)
                                        if (got[i * width + k] != initial[plan::header + rows[i] * width + k])
                                          throw Error{"another row"};
                                  });
  CHECK(all_errors(run) == "");
}

TEST_CASE("a row outside the table is refused before anything is sent", "[strategy][ps]") {
  auto const run = run_parameters(
      LocalTransport{}, table_shards(1, 2), Asynchronous{}, optim::SGD{}, initial_values(n), [&](auto& client, int) {
        auto const rows = std::vector<std::uint32_t>{3, 1'000};
        auto values     = std::vector<float>(2 * width);
        client.push_rows(table, Span<std::uint32_t const>{rows}, Span<float const>{values}, 1, 0);
      });
  CHECK_THAT(run.errors[0], Catch::Contains("row 1000 is not among the 1000 rows"));
}

TEST_CASE("the bytes of a push of rows follow the rows, not the table", "[strategy][ps]") {
  auto const run     = train_rows<std::uint32_t>(1, 1, Asynchronous{});
  auto const& ledger = run.ledgers[0];
  auto const least   = 10 * 50 * (width * sizeof(float) + 2 * sizeof(std::uint32_t));
  CHECK(ledger.bytes_in >= least);
  CHECK(ledger.bytes_in <= least + 32 * sizeof(parameter_server::Request));
  CHECK(ledger.bytes_in < 11 * n * sizeof(float) / 10);
}

TEST_CASE("a pull of a version that the worker has transfers nothing", "[strategy][ps]") {
  auto const initial = initial_values(n);
  auto const run     = run_parameters(
      LocalTransport{}, table_shards(1, 1), Asynchronous{}, optim::SGD{}, initial, [&](auto& client, int) {
        auto values = initial, other = initial, gradients = std::vector<float>(flat_size(n));
        client.pull(variables_in(values));  // version 0, which all have
        fill_gradient(gradients, 0, 0, 4);
        client.push(gradients_in(gradients), 0);
        client.pull(variables_in(values));
        client.pull(variables_in(values));
        client.pull(variables_in(other));  // this buffer has another version
        if (other != values) throw Error{"another buffer has other values"};
        if (values == initial) throw Error{"nothing was pulled"};
      });
  CHECK(all_errors(run) == "");
  CHECK(run.ledgers[0].pulls == 4);
  CHECK(run.ledgers[0].unchanged == 2);
  CHECK(run.ledgers[0].bytes_out < 2 * n * sizeof(float) + 10 * sizeof(parameter_server::Reply));
}

TEST_CASE("a total waits for the reports of all workers, and has them added up", "[strategy][ps]") {
  auto const run = run_parameters(LocalTransport{}, table_shards(3, 2), Asynchronous{}, optim::SGD{}, initial_values(n),
                                  [&](auto& client, int worker) {
                                    for (int epoch = 0; epoch < 70; ++epoch) {  // more than are kept
                                      if (worker == 2 && epoch == 69) return;   // leaves: nobody waits for it
                                      client.report(epoch, std::vector{1.0 + worker, 0.5, static_cast<double>(epoch)});
                                      auto const total = client.total(epoch);
                                      auto const who =
                                          epoch == 69 ? std::vector<Rank>{0, 1} : std::vector<Rank>{0, 1, 2};
                                      if (total.reported != who) throw Error{"others reported"};
                                      auto const workers = static_cast<double>(who.size());
                                      if (total.sums[0] != workers * (workers + 1) / 2 ||
                                          total.sums[1] != 0.5 * workers || total.sums[2] != workers * epoch)
                                        throw Error{"another sum in epoch " + std::to_string(epoch)};
                                    }
                                  });
  CHECK(all_errors(run) == "");
}

TEST_CASE("a closure changes related values under one version, while workers push and pull", "[strategy][ps]") {
  auto endpoints     = LocalTransport{}.connect(Group::all_local(2));
  auto const shards  = shards_of(1, 1, n);
  auto const initial = initial_values(n);
  auto service =
      parameter_server::Server{endpoints[1], Asynchronous{}, optim::SGD{.learning_rate = 0}, shards, initial};
  auto torn = std::atomic<int>{0}, called = std::atomic<int>{0};
  {
    auto const server = NamedThread{"server", [&] { service.serve(); }};
    auto client       = parameter_server::Client{endpoints[0], shards};
    auto values = initial, gradients = std::vector<float>(flat_size(n));
    fill_gradient(gradients, 0, 0, 1);
    for (int i = 1; i <= 50; ++i) {
      service.update([&, i](Span<float> v, Span<float>) {
        std::ranges::fill(v, static_cast<float>(i));
        ++called;
      });
      client.push(gradients_in(gradients), 0);
      client.pull(variables_in(values));
      auto const body = variables_in(values).body();
      auto const same = std::ranges::all_of(body, [&](float x) { return x == body[0]; });
      torn += same || (i == 1 && values == initial) ? 0 : 1;  // the first may not have been called yet
    }
  }
  CHECK(torn == 0);
  CHECK(called == 50);
  CHECK(service.shard().version() == 100);
}

}  // namespace parameter_rows_test
