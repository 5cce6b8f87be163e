// SPDX-License-Identifier: Apache-2.0
// Tables whose gradients are rows on a parameter server: what a push and a pull transfer, and what they change.
#include "test/strategy/parameter_server/parameter_job.hpp"
#include "test/support/count_allocations.hpp"

#include <chorale/strategy/parameter_server/changed_rows.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parameter_tables_test {

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t dense = 100, elements = plan::header + dense + plan::trailer;
constexpr auto tables =
    std::array{parameter_server::RowTable{elements, 1'000, 24}, parameter_server::RowTable{elements + 24'000, 300, 3}};
constexpr std::size_t all   = elements + 24'000 + 900;
constexpr int rows_of_batch = 4;

/// Some of the dense variables on each server, but for the last of several, which has rows of tables only.
parameter_server::ShardLayout layout(int workers, int servers) {
  auto runs = std::vector<std::vector<Range>>(static_cast<std::size_t>(servers));
  for (int s = 0; s < servers; ++s) {
    auto& mine = runs[static_cast<std::size_t>(s)];
    if (s == 0 || s + 1 < servers) {
      auto const part = share(dense, s, std::max(1, servers - 1));
      mine.push_back({plan::header + part.begin, plan::header + part.end});
    }
    for (auto const& table : tables)
      for (int half = 0; half < 2; ++half) {  // two parts of each table on each server
        auto const part = share(table.rows, half * servers + s, 2 * servers);
        mine.push_back({table.offset + part.begin * table.width, table.offset + part.end * table.width});
      }
  }
  return {workers, std::move(runs), 1, {tables.begin(), tables.end()}};
}

std::vector<float> initial() {
  auto values = std::vector<float>(all);
  for (std::size_t i = 0; i < all; ++i) values[i] = Random{3, 0}.uniform(i, -1.0F, 1.0F);
  std::fill_n(values.begin() + plan::header + dense, plan::trailer, 0.0F);
  std::fill_n(values.begin(), plan::header, 0.0F);
  return values;
}

/// The copy of one worker: variables with tables, and gradients with rows.
struct Copy {
  explicit Copy(std::vector<float> of = initial()) : values{std::move(of)}, gradients(elements) {
    for (std::size_t t = 0; t < 2; ++t) rows.emplace_back(t, tables[t].rows, tables[t].width);
  }

  std::vector<float> values, gradients;
  std::vector<RowGradients> rows;

  Variables variables() { return {values, {}, all - elements}; }
  Gradients sums() { return {gradients, {}, {}, 0, rows}; }
};

/// Gradients of a step: small and whole, so that a sum is the same in any order. Ids of a bag share a vector.
void fill(Copy& copy, int worker, int step) {
  auto const random = Random{6, static_cast<std::uint64_t>(100 * worker + step)};
  auto const whole  = [&](std::uint64_t i) { return static_cast<float>(random.below(i, 17)) - 8.0F; };
  for (std::size_t i = 0; i < dense; ++i) copy.gradients[plan::header + i] = whole(i);
  StepHeader{copy.gradients}.rows() = rows_of_batch;
  for (std::size_t t = 0; t < 2; ++t) {
    copy.rows[t].clear();
    auto vector = std::vector<float>(tables[t].width);
    for (std::uint64_t bag = 0; bag < 6; ++bag) {
      for (std::size_t c = 0; c < vector.size(); ++c) vector[c] = whole(1'000 * (t + 1) + 30 * bag + c);
      auto const shared = copy.rows[t].share(vector.data());
      for (std::uint64_t i = 0; i < 5; ++i)
        copy.rows[t].add_shared(random.below(10'000 * (t + 1) + 10 * bag + i, i == 0 ? 7 : tables[t].rows), shared);
    }
  }
}

auto const momentum = optim::SGD{.learning_rate = 0.125F, .momentum = 0.5F};

/// Values after each step, by hand: rows that do not come keep value and momentum.
std::vector<std::vector<float>> by_hand(int workers) {
  auto values = initial(), velocity = std::vector<float>(all);
  auto copy  = Copy{};
  auto after = std::vector<std::vector<float>>{};
  for (int step = 0; step < 10; ++step) {
    auto sums = std::map<std::size_t, float>{};  // of each element that is updated
    for (int worker = 0; worker < workers; ++worker) {
      fill(copy, worker, step);
      for (std::size_t i = plan::header; i < plan::header + dense; ++i) sums[i] += copy.gradients[i];
      for (std::size_t t = 0; t < 2; ++t)
        for (std::size_t i = 0; i < copy.rows[t].size(); ++i)
          for (std::size_t c = 0; c < tables[t].width; ++c)
            sums[tables[t].offset + copy.rows[t].rows()[i] * tables[t].width + c] += copy.rows[t][i][c];
    }
    for (auto const& [i, sum] : sums) {
      velocity[i] = 0.5F * velocity[i] - 0.125F * (sum * (1.0F / static_cast<float>(rows_of_batch * workers)));
      values[i] += velocity[i];
    }
    after.push_back(values);
  }
  return after;
}

std::set<std::size_t> touched(int workers, int step, std::size_t t) {
  auto copy = Copy{};
  auto rows = std::set<std::size_t>{};
  for (int worker = 0; worker < workers; ++worker) {
    fill(copy, worker, step);
    rows.insert(copy.rows[t].rows().begin(), copy.rows[t].rows().end());
  }
  return rows;
}

template <class T, class C, class Each>
ParameterResult train(T const& transport, int workers, int servers, C consistency, Each each,
                      ParameterOptions options = {}) {
  return run_parameters(
      transport, layout(workers, servers), consistency, momentum, initial(),
      [&](auto& client, int worker) {
        auto copy = Copy{};
        for (int step = 0; step < 10; ++step) {
          fill(copy, worker, step);
          client.push_and_pull(copy.sums(), copy.variables(), 0);
          each(client, copy, step);
        }
      },
      options);
}

constexpr auto nothing = [](auto&, Copy&, int) {};

/// Bytes of the rows of a push.
std::size_t bytes_of_rows(Copy const& copy) {
  auto bytes = std::size_t{0};
  for (auto const& rows : copy.rows) bytes += 8 + 8 * rows.size() + rows.values().size() * sizeof(float);
  return bytes;
}

}  // namespace

TEST_CASE("rows in the order of their last change are found from a version on", "[strategy][ps][rows]") {
  auto changed     = parameter_server::ChangedRows{50};
  auto version_of  = std::map<std::size_t, std::uint64_t>{};
  auto const check = [&](std::uint64_t since) {
    auto found = std::set<std::size_t>{}, want = std::set<std::size_t>{};
    changed.each_since(since, [&](std::size_t row) { CHECK(found.insert(row).second); });
    for (auto const& [row, version] : version_of)
      if (version > since) want.insert(row);
    CHECK(found == want);
  };
  check(0);
  for (std::uint64_t version = 1; version <= 40; ++version) {
    for (std::uint64_t i = 0; i < 6; ++i) {
      auto const row = Random{9, version}.below(i, version % 5 == 0 ? 4 : 50);
      changed.touch(row, version);
      version_of[row] = version;
    }
    for (std::uint64_t const back : {0U, 1U, 2U, 7U})
      if (back <= version) check(version - back);
  }
}

TEMPLATE_TEST_CASE("a push brings rows of tables beside gradients, and a pull those that have changed",
                   "[strategy][ps][rows]", LocalTransport, SharedMemoryTransport) {
  for (int const workers : {1, 2, 3}) {
    auto const want = by_hand(workers);
    auto rows_of    = std::vector<std::array<std::set<std::size_t>, 2>>{};
    for (int step = 0; step < 10; ++step) rows_of.push_back({touched(workers, step, 0), touched(workers, step, 1)});
    for (int const servers : {1, 2, 3}) {
      auto const run = train(TestType{}, workers, servers, Synchronous{}, [&](auto& client, Copy& copy, int step) {
        auto const now = static_cast<std::size_t>(step);
        if (copy.values != want[now]) throw Error{"another value in step " + std::to_string(step)};
        if (client.pulled().all) throw Error{"a whole table was pulled"};
        for (std::size_t t = 0; t < 2; ++t) {
          auto const& rows = client.pulled().rows[t];
          if (std::set<std::size_t>(rows.begin(), rows.end()) != rows_of[now][t] ||
              rows.size() != rows_of[now][t].size())
            throw Error{"other rows were pulled"};
        }
      });
      CHECK(all_errors(run) == "");
      CHECK(same_bits(run.values, want.back()));
      for (auto const& ledger : run.ledgers) CHECK(ledger.updates == 10);
    }
  }
}

TEMPLATE_TEST_CASE("workers that do not wait have the values of the servers after a pull", "[strategy][ps][rows]",
                   Asynchronous, BoundedStaleness<2>) {
  auto const servers = GENERATE(1, 2);
  auto last          = std::vector<std::vector<float>>{};  // values of each worker
  auto lock          = std::mutex{};
  auto const run     = train(LocalTransport{}, 3, servers, TestType{}, [&](auto& client, Copy& copy, int step) {
    if (step + 1 < 10) return;
    client.report(0, std::vector{1.0});
    static_cast<void>(client.total(0));  // all have pushed
    client.pull(copy.variables());
    client.report(1, std::vector{1.0});
    static_cast<void>(client.total(1));  // and nobody leaves before
    if (client.pulled().all) throw Error{"a whole table was pulled"};
    auto const held = std::scoped_lock{lock};
    last.push_back(copy.values);
  });
  CHECK(all_errors(run) == "");
  CHECK(last.size() == 3);
  for (auto const& values : last) CHECK(same_bits(values, run.values));
  auto pushes = std::uint64_t{0};
  for (auto const& ledger : run.ledgers) pushes += ledger.pushes();
  CHECK(pushes == 30U * static_cast<unsigned>(servers));
}

TEST_CASE("bytes of a push and of a pull follow the rows, not the tables", "[strategy][ps][rows]") {
  auto out = std::size_t{0}, in = std::size_t{0};  // of ten steps of one worker
  auto copy = Copy{};
  for (int step = 0; step < 10; ++step) {
    fill(copy, 0, step);
    out += sizeof(parameter_server::Request) + dense * sizeof(float) + bytes_of_rows(copy);
    in += sizeof(parameter_server::Reply) + dense * sizeof(float);
    for (auto const& rows : copy.rows) {
      auto const vector = rows.width() * sizeof(float);
      CHECK(rows.values().size() * sizeof(float) < rows.size() * vector);  // vectors are shared
      in += 4 + (4 + vector) * rows.size();
    }
  }
  auto const run = train(LocalTransport{}, 1, 1, Asynchronous{}, nothing);
  CHECK(run.ledgers[0].bytes_in == out + sizeof(parameter_server::Request));  // and that it leaves
  CHECK(run.ledgers[0].bytes_out == in + sizeof(parameter_server::Reply));
  CHECK(out < (all - elements) * sizeof(float));  // ten pushes are less than the tables
}

TEST_CASE("dense gradients in shared memory are read in place, beside rows that are sent", "[strategy][ps][rows]") {
  auto const servers = GENERATE(1, 2);
  auto const run =
      run_parameters(SharedMemoryTransport{.arena = elements * sizeof(float)}, layout(1, servers), Asynchronous{},
                     momentum, initial(), [](auto& client, int worker, auto& at) {
                       auto copy         = Copy{};
                       auto const placed = Span<float>{reinterpret_cast<float*>(at.memory().data()), elements};
                       for (int step = 0; step < 10; ++step) {
                         fill(copy, worker, step);
                         std::ranges::copy(copy.gradients, placed.begin());
                         client.push_and_pull(Gradients{placed, {}, {}, 0, copy.rows}, copy.variables(), 0);
                       }
                     });
  CHECK(all_errors(run) == "");
  CHECK(same_bits(run.values, by_hand(1).back()));
  auto bytes = 11 * sizeof(parameter_server::Request);  // the last one leaves
  auto copy  = Copy{};
  for (int step = 0; step < 10; ++step) fill(copy, 0, step), bytes += bytes_of_rows(copy);
  if (servers == 1) CHECK(run.ledgers[0].bytes_in == bytes);
}

TEST_CASE("a buffer that has not pulled gets everything, and so does one after all was assigned",
          "[strategy][ps][rows]") {
  auto const run = train(LocalTransport{}, 1, 2, Asynchronous{}, [](auto& client, Copy& copy, int step) {
    auto other = Copy{std::vector<float>(all)};
    if (step == 5) {
      client.pull(other.variables());
      if (!client.pulled().all || other.values != copy.values) throw Error{"another buffer has other values"};
      client.pull(copy.variables());
    }
    if (step == 7) {
      for (auto& x : copy.values) x *= 2;
      client.assign(copy.variables());
      other.values = copy.values;
      client.pull(copy.variables());
      if (!client.pulled().all || other.values != copy.values) throw Error{"other values than assigned"};
    }
    if (step == 8 && client.pulled().all) throw Error{"a whole table was pulled"};
  });
  CHECK(all_errors(run) == "");
}

TEST_CASE("rows that are pushed by themselves are pulled with the others", "[strategy][ps][rows]") {
  auto const run = train(LocalTransport{}, 1, 2, Asynchronous{}, [](auto& client, Copy& copy, int) {
    auto const rows   = std::vector<std::uint32_t>{5, 999, 5};
    auto const values = std::vector<float>(3 * tables[0].width, 1.0F);
    auto now          = std::vector<float>(3 * tables[0].width);
    client.push_rows(tables[0], Span<std::uint32_t const>{rows}, Span<float const>{values}, 1, 0);
    client.pull(copy.variables());
    client.pull_rows(tables[0], Span<std::uint32_t const>{rows}, Span<float>{now});
    if (client.pulled().rows[0].size() != 2 || !client.pulled().rows[1].empty()) throw Error{"other rows were pulled"};
    for (std::size_t c = 0; c < tables[0].width; ++c)
      if (copy.values[tables[0].offset + 5 * tables[0].width + c] != now[c]) throw Error{"another row"};
  });
  CHECK(all_errors(run) == "");
}

TEST_CASE("gradients of 16 bits go with rows as they are", "[strategy][ps][rows]") {
  auto const options = ParameterOptions{.pushed_as = PushedAs::bf16};  // small whole numbers are not rounded
  auto const run     = train(LocalTransport{}, 2, 2, Synchronous{}, nothing, options);
  CHECK(all_errors(run) == "");
  CHECK(same_bits(run.values, by_hand(2).back()));
}

TEST_CASE("a row that is not finite is applied by no server, nor is a sum that is not", "[strategy][ps][rows]") {
  auto const bad = GENERATE(NAN, 3e38F);  // of both workers, 3e38 is finite
  auto const run =
      run_parameters(LocalTransport{}, layout(2, 1), Synchronous{}, momentum, initial(), [&](auto& client, int) {
        auto copy         = Copy{};
        auto const vector = std::vector<float>(24, bad);
        copy.rows[0].add(17, vector.data());
        StepHeader{copy.gradients}.rows() = rows_of_batch;
        client.push_and_pull(copy.sums(), copy.variables(), 0);
      });
  for (auto const worker : {std::size_t{0}, std::size_t{1}})
    CHECK_THAT(run.errors[worker], Catch::Contains("no variable was changed"));
  CHECK(same_bits(run.values, initial()));
}

TEST_CASE("a push and a pull of rows allocate nothing once as many rows were seen", "[strategy][ps][rows]") {
  auto const servers = GENERATE(1, 2);
  auto endpoints     = LocalTransport{}.connect(Group::all_local(1 + servers));
  auto const shards  = layout(1, servers);
  auto of_servers    = std::vector<std::pair<int, int>>(2);  // allocations after 20 and after 60 steps
  auto step          = std::atomic<int>{0};
  {
    auto threads = std::vector<NamedThread>{};
    for (int s = 0; s < servers; ++s)
      threads.emplace_back("server", [&, s] {
        auto service  = parameter_server::Server{endpoints[static_cast<std::size_t>(1 + s)], Asynchronous{}, momentum,
                                                shards, initial()};
        auto& counted = of_servers[static_cast<std::size_t>(s)];
        service.serve([&] {
          if (step < 20) counted.first = allocations;
          if (step < 60) counted.second = allocations;
          return true;
        });
      });
    auto client = parameter_server::Client{endpoints[0], shards};
    auto copy   = Copy{};
    auto mine   = 0;
    for (; step < 60; ++step) {
      fill(copy, 0, step % 10);
      auto const before = allocations;
      client.push_and_pull(copy.sums(), copy.variables(), 0);
      if (step >= 20) mine += allocations - before;
    }
    CHECK(mine == 0);
  }
  for (auto const& [before, after] : of_servers) CHECK(after == before);
}

TEST_CASE("words that are no rows of the tables are refused, and change nothing", "[strategy][ps][rows]") {
  using Words      = std::vector<std::uint32_t>;
  auto const value = std::uint32_t{0x3f80'0000};  // 1.0F
  auto const with  = [&](Words head, std::size_t floats, Words tail) {
    head.insert(head.end(), floats, value);
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  };
  auto const [words, why] = GENERATE_COPY(table<Words, std::string>(
      {{Words{}, "the rows of table 0 are missing"},
       {Words{0, 0}, "the rows of table 1 are missing"},
       {Words{0, 0, 0, 0, 0}, "1 words follow the rows of all tables"},
       {with({1, 1, 1'000, 0}, 24, {0, 0}), "row 1000 of 1000 is not on server 0"},
       {with({1, 1, 5, 1}, 24, {0, 0}), "or has none of the 1 vectors"},
       {Words{0xffff'ffff, 0, 0, 0}, "4294967295 rows and 0 vectors of table 0 are not in 4 words"},
       {Words{0, 0xffff'ffff, 0, 0}, "0 rows and 4294967295 vectors of table 0 are not in 4 words"}}));
  auto const shards       = layout(1, 1);
  auto ends               = LocalTransport{}.connect(Group::all_local(2));
  auto service            = parameter_server::Server{ends[1], Asynchronous{}, momentum, shards, initial()};
  auto reply              = parameter_server::Reply{};
  {
    auto const server = NamedThread{"server", [&] { service.serve(); }};
    auto request      = parameter_server::Request{.layout   = shards.fingerprint(),
                                                  .sequence = 1,
                                                  .count    = words.size(),
                                                  .rows     = 1,
                                                  .call     = parameter_server::Call::push};
    auto const values = std::vector<float>(dense, 1.0F);
    auto const tag    = ParameterOptions{}.tag;
    ends[0].send(1, tag, bytes_of(request)).wait();
    ends[0].send(1, tag, std::as_bytes(Span<float const>{values})).wait();
    if (!words.empty()) ends[0].send(1, tag, std::as_bytes(Span<std::uint32_t const>{words})).wait();
    ends[0].recv(1, tag, bytes_of(reply)).wait();
  }
  CHECK(reply.outcome == parameter_server::Outcome::refused);
  CHECK_THAT(reply.said(), Catch::Contains(why));
  CHECK(service.shard().version() == 0);
}

TEST_CASE("a part of a row on a server is refused", "[strategy][ps][rows]") {
  auto const cut = std::vector<std::vector<Range>>{{{plan::header, plan::header + dense}, {elements, elements + 25}}};
  CHECK_THROWS_WITH((parameter_server::ShardLayout{1, cut, 1, {tables.begin(), tables.end()}}),
                    Catch::Contains("are no whole rows of a table"));
}

}  // namespace parameter_tables_test
