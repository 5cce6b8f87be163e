// SPDX-License-Identifier: Apache-2.0
// Workers that are late, slow, wrong or repeat themselves, over threads.
#include "test/strategy/parameter_server/parameter_job.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <limits>

namespace parameter_faults_test {

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t n = 1'000;

/// Rounds by hand: each sums what some workers bring, in their order.
struct Round {
  std::vector<std::pair<int, int>> of;  // worker, step of its gradient
};

std::vector<float> by_hand(std::vector<Round> const& rounds, optim::SGD const& rule, std::vector<float> const& rows) {
  auto values = initial_values(n), sum = std::vector<float>(flat_size(n)), one = sum, slots = std::vector<float>(n);
  auto now = optim::Moment{};
  for (auto const& round : rounds) {
    std::ranges::fill(sum, 0.0F);
    for (auto const& [worker, step] : round.of) {
      fill_gradient(one, worker, step, rows[static_cast<std::size_t>(worker)]);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    auto const body = [](std::vector<float>& flat) { return Span<float>{flat}.subspan(plan::header, n); };
    rule.update<Cpu>(optim::Update{body(values), body(sum), slots, 1.0F / StepHeader{sum}.rows(), now});
    ++now.step;
  }
  return values;
}

/// Spins until another thread has counted so far.
void await(std::atomic<int> const& count, int least) {
  spin_until([&] { return count.load(std::memory_order_acquire) >= least; });
}

template <int k> void check_staleness() {
  constexpr int steps = 12;
  auto pushed         = std::atomic<int>{0};  // by worker 0
  auto ahead          = std::atomic<int>{0};  // most that worker 0 was ahead of worker 1
  auto const initial  = initial_values(n);
  auto const run = run_parameters(LocalTransport{}, shards_of(2, 1, n), BoundedStaleness<k>{}, optim::SGD{}, initial,
                                  [&](auto& client, int worker) {
                                    auto values = initial, gradients = std::vector<float>(flat_size(n));
                                    for (int step = 0; step < steps; ++step) {
                                      if (worker == 1) {  // as late as worker 0 lets it be
                                        await(pushed, std::min(steps, step + k + 1));
                                        ahead = std::max(ahead.load(), pushed.load() - step);
                                      }
                                      client.pull(variables_in(values));
                                      fill_gradient(gradients, worker, step, 1);
                                      client.push(gradients_in(gradients), 0);
                                      if (worker == 0) ++pushed;
                                    }
                                  });
  CHECK(all_errors(run) == "");
  CHECK(ahead == k + 1);
  auto const& ledger = run.ledgers[0];
  CHECK(ledger.updates == steps);
  CHECK(ledger.applied == 2 * steps);
  CHECK(ledger.staleness[k] >= steps - k);
  for (std::size_t i = k + 1; i < ledger.staleness.size(); ++i) CHECK(ledger.staleness[i] == 0);
}

/// A client by hand: sends what no client would.
template <class E>
parameter_server::Reply ask(E& at, parameter_server::ShardLayout const& shards,
                            parameter_server::Request const& request, std::vector<float> const& flat) {
  auto const server = shards.rank_of(0);
  auto const tag    = ParameterOptions{}.tag;
  auto copy         = request;
  auto reply        = parameter_server::Reply{};
  at.send(server, tag, bytes_of(copy)).wait();
  if (request.brings_values())
    for (auto const part : shards.messages(0)) {
      auto message = std::vector<float>{};
      shards.pieces(0, part, [&](Range from, Range) {
        message.insert(message.end(), flat.begin() + static_cast<std::ptrdiff_t>(from.begin),
                       flat.begin() + static_cast<std::ptrdiff_t>(from.end));
      });
      at.send(server, tag, std::as_bytes(Span<float>{message})).wait();
    }
  at.recv(server, tag, bytes_of(reply)).wait();
  return reply;
}

/// One worker by hand, one server.
template <class C, class Body>
parameter_server::ServerStatistics by_hand_against_server(C consistency, std::vector<float>& values, Body body,
                                                          std::vector<parameter_server::KnownUpdate> updates = {}) {
  auto endpoints    = LocalTransport{}.connect(Group::all_local(2));
  auto const shards = shards_of(1, 1, n);
  auto service =
      parameter_server::Server{endpoints[1],       consistency,       optim::SGD{.learning_rate = 1}, shards, values,
                               ParameterOptions{}, std::move(updates)};
  {
    auto const server = NamedThread{"server", [&] { service.serve(); }};
    body(endpoints[0], shards);
  }
  service.shard().update([&](Span<float> all, Span<float>) {
    shards.pieces(0, {0, all.size()}, [&](Range flat, Range shard) {
      std::ranges::copy(all.subspan(shard.begin, shard.size()),
                        values.begin() + static_cast<std::ptrdiff_t>(flat.begin));
    });
  });
  return service.ledger();
}

parameter_server::Request request_to(parameter_server::ShardLayout const& shards, parameter_server::Call call,
                                     std::uint64_t sequence) {
  return {.layout = shards.fingerprint(), .sequence = sequence, .rows = 1, .call = call};
}

}  // namespace

TEST_CASE("a worker computes on values that lack at most k rounds, however slow another is", "[strategy][ps]") {
  check_staleness<0>();
  check_staleness<1>();
  check_staleness<3>();
}

TEST_CASE("BackupWorkers divides by the rows that came, and drops and counts what is late", "[strategy][ps]") {
  constexpr int steps = 8;
  auto const servers  = GENERATE(1, 2);
  auto const rule     = optim::SGD{.learning_rate = 0.1F};
  auto const initial  = initial_values(n);
  auto const rows     = std::vector<float>{3, 5, 100};
  auto done           = std::atomic<int>{0};
  auto dropped        = std::vector<int>{};
  auto const run      = run_parameters(LocalTransport{}, shards_of(3, servers, n), BackupWorkers<1>{}, rule, initial,
                                       [&](auto& client, int worker) {
                                    auto values = initial, gradients = std::vector<float>(flat_size(n));
                                    auto const step_of = [&](int step) {
                                      fill_gradient(gradients, worker, step, rows[static_cast<std::size_t>(worker)]);
                                      return client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
                                    };
                                    if (worker == 2) {
                                      await(done, 2 * steps);
                                      dropped.push_back(step_of(0));  // computed on the values of round 0
                                      dropped.push_back(step_of(1));  // the others are at the barrier below
                                      ++done;
                                      return;
                                    }
                                    for (int step = 0; step < steps; ++step) {
                                      if (step_of(step) != 0) throw Error{"one of the first two was late"};
                                      ++done;
                                    }
                                    if (worker == 0) step_of(steps);  // with worker 2: round 8
                                    else await(done, 2 * steps + 1);
                                  });
  CHECK(all_errors(run) == "");
  CHECK(dropped == std::vector{servers, 0});
  auto rounds = std::vector<Round>{};
  for (int step = 0; step < steps; ++step) rounds.push_back({{{0, step}, {1, step}}});
  rounds.push_back({{{0, steps}, {2, 1}}});
  CHECK(same_bits(run.values, by_hand(rounds, rule, rows)));
  for (auto const& ledger : run.ledgers) {
    CHECK(ledger.late == 1);
    CHECK(ledger.applied == 2 * steps + 2);
    CHECK(ledger.pushes() == 2 * steps + 3);
  }
}

TEST_CASE("a worker that is many rounds late ends its epoch without the others", "[strategy][ps]") {
  constexpr int steps = 8;
  auto const servers  = GENERATE(1, 2);
  auto const initial  = initial_values(n);
  auto done           = std::atomic<int>{0};
  auto late           = std::atomic<int>{0};
  auto const run = run_parameters(LocalTransport{}, shards_of(3, servers, n), BackupWorkers<1>{}, optim::SGD{}, initial,
                                  [&](auto& client, int worker) {
                                    auto values = initial, gradients = std::vector<float>(flat_size(n));
                                    auto const sums = std::vector<double>{1};
                                    for (int epoch = 0; epoch < 2; ++epoch) {
                                      if (worker == 2)
                                        await(done, 2 * steps * (epoch + 1));  // the others have no step left
                                      for (int step = 0; step < steps; ++step) {
                                        fill_gradient(gradients, worker, step, 1);
                                        late +=
                                            client.push_and_pull(gradients_in(gradients), variables_in(values), epoch);
                                        if (worker != 2) ++done;
                                      }
                                      client.report(epoch, sums);
                                      client.total(epoch);
                                      client.pull(variables_in(values));
                                    }
                                  });
  CHECK(all_errors(run) == "");
  CHECK(late == 2 * servers);  // the first of each epoch
  for (auto const& ledger : run.ledgers) CHECK((ledger.late == 2 && ledger.applied == 2 * 3 * steps - 2));
}

TEST_CASE("more spares than a round can miss are refused", "[strategy][ps]") {
  auto const run = run_parameters(LocalTransport{}, shards_of(2, 1, n), BackupWorkers<2>{}, optim::SGD{},
                                  initial_values(n), [](auto&, int) {});
  CHECK_THAT(run.errors[2], Catch::Contains("a round that 2 workers may miss needs more than 2"));
}

TEST_CASE("a gradient that is not finite stops its worker, and nothing of it is applied on any server",
          "[strategy][ps]") {
  auto const where   = plan::header + GENERATE(as<std::size_t>{}, 0, n - 20);  // another server each
  auto const initial = initial_values(n);
  auto const rule    = optim::SGD{.learning_rate = 0.1F};
  auto const run =
      run_parameters(LocalTransport{}, shards_of(2, 2, n), Synchronous{}, rule, initial, [&](auto& client, int worker) {
        auto values = initial, gradients = std::vector<float>(flat_size(n));
        for (int step = 0; step < 6; ++step) {
          fill_gradient(gradients, worker, step, 2);
          if (worker == 1 && step == 3) gradients[where] = std::numeric_limits<float>::quiet_NaN();
          client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
        }
      });
  CHECK(run.errors[0] == "");
  CHECK_THAT(run.errors[1], Catch::Contains("a gradient of step 3 is not finite on worker 1; no variable was changed"));
  CHECK(run.errors[2] + run.errors[3] == "");
  auto rounds = std::vector<Round>{};
  for (int step = 0; step < 6; ++step) rounds.push_back(step < 3 ? Round{{{0, step}, {1, step}}} : Round{{{0, step}}});
  CHECK(same_bits(run.values, by_hand(rounds, rule, {2, 2})));
  for (auto const& ledger : run.ledgers) CHECK((ledger.refused == 1 && ledger.applied == 9));
}

TEST_CASE("under NonFinite::skip such a push is dropped and counted, and its round goes on", "[strategy][ps]") {
  auto const initial = initial_values(n);
  auto const rule    = optim::SGD{.learning_rate = 0.1F};
  auto dropped       = std::atomic<int>{0};
  auto const run     = run_parameters(LocalTransport{}, shards_of(2, 2, n), Synchronous{}, rule, initial,
                                      [&](auto& client, int worker) {
                                    auto values = initial, gradients = std::vector<float>(flat_size(n));
                                    for (int step = 0; step < 6; ++step) {
                                      fill_gradient(gradients, worker, step, 2);
                                      if (worker == 1 && step == 3)
                                        StepHeader{gradients}.loss() = std::numeric_limits<float>::infinity();
                                      dropped += client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
                                    }
                                  },
                                      {.on_non_finite = NonFinite::skip});
  CHECK(all_errors(run) == "");
  CHECK(dropped == 2);
  auto rounds = std::vector<Round>{};
  for (int step = 0; step < 6; ++step) rounds.push_back(step != 3 ? Round{{{0, step}, {1, step}}} : Round{{{0, 3}}});
  CHECK(same_bits(run.values, by_hand(rounds, rule, {2, 2})));
  for (auto const& ledger : run.ledgers) CHECK((ledger.skipped == 1 && ledger.applied == 11));
}

TEST_CASE("finite gradients whose sum is not stop all workers before it is applied", "[strategy][ps]") {
  auto const initial = initial_values(n);
  auto const run     = run_parameters(LocalTransport{}, shards_of(2, 1, n), Synchronous{}, optim::SGD{}, initial,
                                      [&](auto& client, int) {
                                    auto values = initial, gradients = std::vector<float>(flat_size(n), 3e38F);
                                    StepHeader{gradients}.rows()    = 2;
                                    StepTrailer{gradients}.faults() = 0;
                                    client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
                                  });
  for (int worker : {0, 1})
    CHECK_THAT(run.errors[static_cast<std::size_t>(worker)], Catch::Contains("are finite, but their sum is not"));
  CHECK(same_bits(run.values, initial));
}

TEST_CASE("under NonFinite::skip a round whose sum is not finite is no update, and the rate does not count it",
          "[strategy][ps]") {
  auto const initial = initial_values(n);
  auto const rule    = optim::SGD{.learning_rate = optim::warm_up(8, 0.1F)};
  auto const run     = run_parameters(LocalTransport{}, shards_of(2, 1, n), Synchronous{}, rule, initial,
                                      [&](auto& client, int worker) {
                                    auto values = initial, gradients = std::vector<float>(flat_size(n));
                                    for (int step = 0; step < 6; ++step) {
                                      fill_gradient(gradients, worker, step, 2);
                                      if (step == 3) std::ranges::fill(gradients_in(gradients).body(), 3e38F);
                                      client.push_and_pull(gradients_in(gradients), variables_in(values), 0);
                                    }
                                  },
                                      {.on_non_finite = NonFinite::skip});
  CHECK(all_errors(run) == "");
  auto rounds = std::vector<Round>{};
  for (int const step : {0, 1, 2, 4, 5}) rounds.push_back({{{0, step}, {1, step}}});
  CHECK(same_bits(run.values, by_hand(rounds, rule, {2, 2})));
  CHECK((run.ledgers[0].skipped == 2 && run.ledgers[0].applied == 10));
}

TEST_CASE("an update that threw, and is sent twice, is called once and reported twice", "[strategy][ps]") {
  auto calls         = 0;
  auto const throws  = ServerUpdate{"throws", [&calls](ServerValues values) {
                                     values[0][0] = 99;
                                     ++calls;
                                     throw Error{"it changed its mind."};
                                   }};
  auto const initial = initial_values(n);
  auto values        = initial;
  by_hand_against_server(Asynchronous{}, values,
                         [&](auto& at, auto const& shards) {
                           for (int again = 0; again < 2; ++again) {
                             auto request        = request_to(shards, parameter_server::Call::update, 1);
                             auto range          = Range{plan::header, plan::header + 1};
                             request.version     = throws.key();
                             request.index_bytes = 1;  // range
                             request.count       = sizeof range;
                             at.send(1, ParameterOptions{}.tag, bytes_of(request)).wait();
                             at.send(1, ParameterOptions{}.tag, parameter_server::bytes_of(range)).wait();
                             auto reply = parameter_server::Reply{};
                             at.recv(1, ParameterOptions{}.tag, bytes_of(reply)).wait();
                             CHECK(reply.outcome == parameter_server::Outcome::failed);
                             CHECK_THAT(reply.said(), Catch::Contains("it changed its mind"));
                           }
                           ask(at, shards, request_to(shards, parameter_server::Call::leave, 2), {});
                         },
                         {parameter_server::known(throws)});
  CHECK(calls == 1);
  CHECK(same_bits(values, initial));
}

TEST_CASE("a push that is sent twice is applied once, and answered as if it were", "[strategy][ps]") {
  auto const check = [](auto consistency) {
    auto const initial = initial_values(n);
    auto values = initial, gradients = std::vector<float>(flat_size(n));
    fill_gradient(gradients, 0, 0, 1);
    auto const ledger = by_hand_against_server(consistency, values, [&](auto& at, auto const& shards) {
      for (int again = 0; again < 3; ++again) {
        auto const reply = ask(at, shards, request_to(shards, parameter_server::Call::push, 1), gradients);
        CHECK(reply.outcome == parameter_server::Outcome::done);
        CHECK(reply.duplicate == (again == 0 ? 0 : 1));
        CHECK(reply.clock == 1);
      }
      auto restarted        = request_to(shards, parameter_server::Call::push, 1);  // the first of another start
      restarted.incarnation = 1;
      CHECK(ask(at, shards, restarted, gradients).duplicate == 0);
      auto leaving        = request_to(shards, parameter_server::Call::leave, 2);
      leaving.incarnation = 1;
      ask(at, shards, leaving, {});
    });
    CHECK(ledger.applied == 2);
    CHECK(ledger.duplicates == 2);
    CHECK(ledger.pushes() == 4);
    auto expected = initial;
    for (int times = 0; times < 2; ++times)
      for (std::size_t i = plan::header; i < plan::header + n; ++i) expected[i] -= gradients[i];
    CHECK(same_bits(values, expected));
  };
  check(Asynchronous{});
  check(Synchronous{});
}

TEST_CASE("a request that no client sends is refused with a reason, and changes nothing", "[strategy][ps]") {
  struct Wrong {
    char const* reason;
    void (*make)(parameter_server::Request&);
  };
  auto const wrong   = GENERATE(values<Wrong>({
      {"does not begin like a request", [](auto& r) { r.magic ^= 1; }},
      {"is of worker 7", [](auto& r) { r.worker = 7; }},
      {"other shards", [](auto& r) { r.layout ^= 1; }},
      {"makes call 200", [](auto& r) { r.call = static_cast<parameter_server::Call>(200); }},
      {"saw clock 9", [](auto& r) { r.seen = 9; }},
      {"is number 5", [](auto& r) { r.sequence = 5; }},
      {"less than 0 rows", [](auto& r) { r.rows = std::numeric_limits<float>::quiet_NaN(); }},
      {"indices have 3 bytes", [](auto& r) { r.call = parameter_server::Call::pull_rows, r.index_bytes = 3; }},
      {"its table has",
         [](auto& r) {
         r.call = parameter_server::Call::pull_rows, r.index_bytes = 4, r.table = {0, ~std::size_t{0} / 4, 8};
       }},
      {"names a place", [](auto& r) { r.call = parameter_server::Call::pull, r.place = 1; }},
      {"is about",
         [](auto& r) {
         r.call = parameter_server::Call::push_rows, r.index_bytes = 4, r.table = {16, 100, 8}, r.count = 1ULL << 40;
       }},
  }));
  auto const initial = initial_values(n);
  auto values        = initial;
  auto const ledger  = by_hand_against_server(Asynchronous{}, values, [&](auto& at, auto const& shards) {
    auto request = request_to(shards, parameter_server::Call::push, 1);
    wrong.make(request);
    auto reply = parameter_server::Reply{};
    at.send(1, ParameterOptions{}.tag, bytes_of(request)).wait();
    at.recv(1, ParameterOptions{}.tag, bytes_of(reply)).wait();
    CHECK(reply.outcome == parameter_server::Outcome::refused);
    CHECK_THAT(reply.said(), Catch::Contains(wrong.reason));
  });
  CHECK(same_bits(values, initial));
  CHECK(ledger.pushes() == 0);
}

TEST_CASE("a client with other shards gets a Disagreement that says so; the others go on", "[strategy][ps]") {
  auto endpoints     = LocalTransport{}.connect(Group::all_local(2));
  auto const initial = initial_values(n);
  auto service = parameter_server::Server{endpoints[1], Asynchronous{}, optim::SGD{}, shards_of(1, 1, n), initial};
  auto said    = std::string{};
  {
    auto const server = NamedThread{"server", [&] {
                                      try {
                                        service.serve();
                                      } catch (PeerLost const&) {  // the client ends all when it is refused
                                      }
                                    }};
    auto values       = initial_values(n + 1);
    try {
      parameter_server::Client{endpoints[0], shards_of(1, 1, n + 1)}.pull(variables_in(values));
    } catch (Disagreement const& error) { said = error.what(); }
  }
  CHECK_THAT(said, Catch::Contains("server 0 (rank 1) refused request 1 of worker 0: it has other shards"));
}

}  // namespace parameter_faults_test
