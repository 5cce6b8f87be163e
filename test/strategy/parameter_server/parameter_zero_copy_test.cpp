// SPDX-License-Identifier: Apache-2.0
// Gradients that servers read where they lie in a worker's shared memory, beside the same ones as messages.
#include "test/strategy/parameter_server/parameter_job.hpp"

#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

namespace parameter_in_place_test {

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t table_rows = 600, width = 24, n = 40'001, pushed = 90;
constexpr auto table = parameter_server::RowTable{plan::header, table_rows, width};

/// The table in as many parts as there are servers, and the rest in several runs of each.
parameter_server::ShardLayout shards_with_table(int workers, int servers) {
  auto runs = std::vector<std::vector<Range>>(static_cast<std::size_t>(servers));
  for (int s = 0; s < servers; ++s) {
    auto const rows = share(table_rows, s, servers);
    runs[static_cast<std::size_t>(s)].push_back({plan::header + rows.begin * width, plan::header + rows.end * width});
  }
  auto next = std::size_t{0};
  for (auto begin = table_rows * width; begin < n; ++next) {
    auto const size = std::min(n - begin, next % 2 == 0 ? std::size_t{20'000} : std::size_t{37});
    runs[next % runs.size()].push_back({plan::header + begin, plan::header + begin + size});
    begin += size;
  }
  return {workers, std::move(runs)};
}

enum class Lies { elsewhere, in_memory };

/// Dense pushes and rows, many of them twice, in turn.
template <class C, class O>
ParameterResult train(Lies where, int workers, int servers, C consistency, O const& rule,
                      ParameterOptions options = {}) {
  auto const initial = initial_values(n);
  auto const shared  = SharedMemoryTransport{.arena = 8 * flat_size(n)};
  return run_parameters(
      shared, shards_with_table(workers, servers), consistency, rule, initial,
      [&](auto& client, int worker, auto& at) {
        auto values = initial, gradients = initial;
        auto rows        = std::vector<float>(pushed * width);
        auto placed      = Span<float>{reinterpret_cast<float*>(at.memory().data()), gradients.size()};
        auto const place = [&](std::vector<float>& from) {
          if (where == Lies::elsewhere) return Span<float>{from};
          std::ranges::copy(from, placed.begin());
          return placed.first(from.size());
        };
        for (int step = 0; step < 6; ++step) {
          fill_gradient(gradients, worker, step, 2);
          client.push({place(gradients), {}, {}}, 0);
          std::ranges::fill(placed, NAN);  // it is the worker's again
          client.pull(variables_in(values));
          auto const random = Random{5, static_cast<std::uint64_t>(100 * worker + step)};
          auto indices      = std::vector<std::uint32_t>(pushed);
          for (std::size_t i = 0; i < pushed; ++i)
            indices[i] = static_cast<std::uint32_t>(random.below(i, i % 2 == 0 ? 20 : table_rows));
          for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = values[plan::header + i] + 0.1F;
          client.push_rows(table, Span<std::uint32_t const>{indices}, Span<float const>{place(rows)}, 3, 0);
          std::ranges::fill(placed, NAN);
          client.pull(variables_in(values));
        }
      },
      options);
}

std::uint64_t bytes_in(ParameterResult const& run) {
  auto all = std::uint64_t{0};
  for (auto const& ledger : run.ledgers) all += ledger.bytes_in;
  return all;
}

template <class C, class O>
void check_same(int workers, C consistency, O const& rule, std::vector<int> const& servers = {1, 2}) {
  for (int const s : servers) {
    auto const sent = train(Lies::elsewhere, workers, s, consistency, rule);
    auto const read = train(Lies::in_memory, workers, s, consistency, rule);
    CHECK(all_errors(sent) + all_errors(read) == "");
    CHECK(same_bits(sent.values, read.values));
    for (std::size_t i = 0; i < sent.ledgers.size(); ++i) CHECK(sent.ledgers[i].applied == read.ledgers[i].applied);
    auto const gradients = static_cast<std::uint64_t>(6 * workers) * (n + pushed * width) * sizeof(float);
    CHECK(bytes_in(sent) >= gradients);
    CHECK(bytes_in(read) < gradients / 10);  // requests and indices only
  }
}

}  // namespace

TEST_CASE("gradients in shared memory are read in place, to the bits of messages", "[strategy][ps]") {
  check_same(1, Asynchronous{}, optim::SGD{.learning_rate = 0.1F});
  check_same(1, Asynchronous{}, optim::Adam{});
}

TEST_CASE("they are put aside where a round or a norm waits for all of them", "[strategy][ps]") {
  check_same(2, Synchronous{}, optim::Adam{});
  check_same(1, BoundedStaleness<2>{}, optim::SGD{.momentum = 0.9F});
  check_same(1, Asynchronous{}, optim::SGD{.learning_rate = 0.1F, .global_clipnorm = 0.5F}, {1});
}

TEST_CASE("gradients of 16 bits are sent", "[strategy][ps]") {
  auto const run = train(Lies::in_memory, 1, 2, Asynchronous{}, optim::SGD{}, {.pushed_as = PushedAs::bf16});
  CHECK(all_errors(run) == "");
  CHECK(bytes_in(run) >= std::uint64_t{6} * n * 2);
}

TEST_CASE("a row in shared memory that is not finite is applied by no server", "[strategy][ps]") {
  auto const initial = initial_values(n);
  auto const run =
      run_parameters(SharedMemoryTransport{.arena = 1 << 20}, shards_with_table(1, 2), Asynchronous{}, optim::SGD{},
                     initial, [](auto& client, int, auto& at) {
                       auto const rows = Span<float>{reinterpret_cast<float*>(at.memory().data()), 2 * width};
                       std::ranges::fill(rows, 1.0F);
                       rows[width]        = NAN;
                       auto const indices = std::vector<std::uint32_t>{0, table_rows - 1};
                       client.push_rows(table, Span<std::uint32_t const>{indices}, Span<float const>{rows}, 1, 0);
                     });
  CHECK_THAT(run.errors[0], Catch::Contains("a gradient of a row of step 0 is not finite on worker 0"));
  CHECK(run.errors[1] + run.errors[2] == "");
  CHECK(same_bits(run.values, initial));
}

TEST_CASE("a norm of rows counts a row that is there twice as the one it is", "[strategy][ps]") {
  auto const initial = std::vector<float>(flat_size(n));
  auto const run =
      run_parameters(LocalTransport{}, shards_with_table(1, 1), Asynchronous{},
                     optim::SGD{.learning_rate = 1, .global_clipnorm = 1}, initial, [](auto& client, int) {
                       auto const rows    = std::vector<float>(3 * width, 1.0F);
                       auto const indices = std::vector<std::uint32_t>{7, 9, 7};
                       client.push_rows(table, Span<std::uint32_t const>{indices}, Span<float const>{rows}, 1, 0);
                     });
  CHECK(all_errors(run) == "");
  auto squares = 0.0;
  for (auto const x : run.values) squares += static_cast<double>(x) * static_cast<double>(x);
  CHECK(squares == Approx(1).epsilon(1e-5));  // (2, 1) rows of 24, brought to norm 1
}

TEST_CASE("places that are not in a worker's memory are refused, and change nothing", "[strategy][ps]") {
  auto const shards  = shards_with_table(1, 1);
  auto const initial = initial_values(n);
  auto const bytes   = flat_size(n) * sizeof(float);
  auto const place   = GENERATE_COPY(std::uint64_t{2}, std::uint64_t{bytes}, std::uint64_t{1} << 40,
                                     ~std::uint64_t{0} - 2);  // odd; short by all but one; far; around
  auto ends          = SharedMemoryTransport{.arena = bytes}.connect(Group::all_local(2));
  auto service       = parameter_server::Server{ends[1], Asynchronous{}, optim::SGD{}, shards, initial};
  auto reply         = parameter_server::Reply{};
  {
    auto const server = NamedThread{"server", [&] { service.serve(); }};
    auto request      = parameter_server::Request{
             .layout = shards.fingerprint(), .sequence = 1, .place = place, .rows = 1, .call = parameter_server::Call::push};
    ends[0].send(1, ParameterOptions{}.tag, bytes_of(request)).wait();
    ends[0].recv(1, ParameterOptions{}.tag, bytes_of(reply)).wait();
  }
  CHECK(reply.outcome == parameter_server::Outcome::refused);
  CHECK_THAT(reply.said(), Catch::Contains("its gradients are said to lie at byte " + std::to_string(place - 1)));
  CHECK(service.ledger().refused == 1);
  CHECK(std::ranges::equal(service.shard().values(), Span<float const>{initial}.subspan(plan::header, n)));
}

}  // namespace parameter_in_place_test
