// SPDX-License-Identifier: Apache-2.0
//
// A trainer under ParameterServerStrategy, every task a process: rows T4 and T5 of docs/65-robustness.md, and T3 for a
// chief that has nothing but its rank.
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <csignal>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

using namespace chorale;
using chorale::test::Processes;
using chorale::test::seconds_now;
using chorale::test::Voice;
using tiny::quietly;

namespace {

/// Processes 0 and 1 are workers, 2 and 3 servers.
struct Four {
  std::vector<std::string> at = free_loopback_addresses(4);

  Cluster cluster(int process) const {
    return Cluster::at({.workers = {at[0], at[1]},
                        .servers = {at[2], at[3]},
                        .me      = {process < 2 ? Role::worker : Role::ps, process % 2},
                        .job     = "test-" + at[0]});
  }
};

template <class C> auto trainer(Cluster const& cluster, C consistency, Timeouts const& limits = {}) {
  return tiny::learner_under(ParameterServerStrategy{cluster, consistency}, RingAllReduce{},
                             TcpTransport{.timeouts = limits, .log = [](std::string const&) {}});
}

/// Batches without end, of which the n-th is told to a process's parent, which may then kill somebody.
struct Endless {
  using element = BasicBatch<float, int>;

  tiny::OwnedBatch<int> rows;
  Voice voice;
  std::size_t tell_at, batches;

  struct Stream {
    Endless const* from;
    std::size_t i = 0;

    bool next(element& batch) {
      if (i == from->batches) return false;
      batch = from->rows.view(0, 16);
      if (i++ == from->tell_at) from->voice.say("there");
      return true;
    }
  };
  Stream stream(std::size_t) const { return {this}; }
  std::optional<std::size_t> size() const { return batches; }
};

template <class C>
void live(Four const& job, int me, Voice voice, C consistency, std::size_t batches, Timeouts const& limits = {}) {
  auto one        = trainer(job.cluster(me), consistency, limits);
  auto const data = Endless{tiny::batch<int>(16, 64, 1), voice, 20, batches};
  try {
    one.fit(data, quietly);
    auto line = std::ostringstream{};
    line << "ended";
    for (auto const& report : one.live().served())
      line << " lost " << report.ledger.lost << " pushes " << report.ledger.applied;
    voice.say(line.str());
  } catch (PeerLost const& lost) {
    auto line = std::ostringstream{};
    line.precision(17);
    line << "lost " << lost.rank() << ' ' << seconds_now() << ' ' << lost.what();
    voice.say(line.str());
    throw;
  }
}

}  // namespace

TEST_CASE("processes that serve and compute learn what one replica learns", "[strategy][servers][processes]") {
  auto const job = Four{};
  auto processes =
      Processes{4, [&](int me, Voice voice) {
                  auto const data = tiny::uneven();
                  auto one        = trainer(job.cluster(me), Synchronous{});
                  one.fit(data, quietly);
                  one.evaluate(data);
                  if (me < 2)
                    voice.say(tiny::difference(tiny::values_of(one), tiny::reference(data)) < 1e-5 ? "equal" : "other");
                }};
  CHECK(processes.line(0) == "equal");
  CHECK(processes.line(1) == "equal");
  for (int i = 0; i < 4; ++i) CHECK(processes.exit(i) == 0);
}

TEST_CASE("processes that serve and compute predict and evaluate as one replica does",
          "[strategy][servers][processes]") {
  auto const job = Four{};
  auto processes = Processes{
      4, [&](int me, Voice voice) {
        auto const data = tiny::uneven();
        auto one        = trainer(job.cluster(me), Synchronous{});
        one.fit(data, quietly);
        auto const rows = one.predict(data);
        auto const test = one.evaluate(data);
        if (me >= 2) return voice.say("served, " + std::to_string(rows.rows() + test.rows()) + " rows");
        auto alone = tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]});
        alone.set_variables(one.variables().values);
        voice.say(rows.values == alone.predict(data).values ? "equal bits" : "other bits");
        voice.say(test.rows() == 279 && std::abs(test.loss() - alone.evaluate(data).loss()) < 1e-6 ? "equal" : "other");
      }};
  for (int worker : {0, 1}) {
    CHECK(processes.line(worker) == "equal bits");
    CHECK(processes.line(worker) == "equal");
  }
  for (int server : {2, 3}) CHECK(processes.line(server) == "served, 0 rows");
  for (int i = 0; i < 4; ++i) CHECK(processes.exit(i) == 0);
}

TEMPLATE_TEST_CASE("a loop of one's own runs in processes that serve and compute", "[strategy][servers][processes]",
                   Synchronous, Asynchronous) {
  auto const job = Four{};
  auto processes = Processes{4, [&](int me, Voice voice) {
                               auto const data = tiny::uneven();
                               auto live   = Live{ParameterServerStrategy{job.cluster(me), TestType{}}, RingAllReduce{},
                                                TcpTransport{.log = [](std::string const&) {}}};
                               auto copies = live.create(tiny::learner(), 7);
                               auto loss   = Sum<float>{};
                               for (auto& batch : live.distribute(data))
                                 loss += live.reduce(live.run(
                                     [&](auto& replica, auto& copy, auto& share) {
                                       auto [sum, gradients] = replica.value_and_gradient(copy, share);
                                       live.update(replica, copy, gradients);
                                       return sum;
                                     },
                                     copies, batch));
                               live.finish(copies);
                               auto const all = live.gather(live.run([](auto& replica) { return replica.id(); }));
                               auto line      = std::ostringstream{};
                               line << "rows " << loss.count << " ranks";
                               for (auto const rank : all) line << ' ' << rank;
                               voice.say(line.str());
                               if (me >= 2) return;
                               voice.say(std::to_string(loss.value) + " " + std::to_string(copies[0].hash()));
                               if (!std::is_same_v<TestType, Synchronous>) return;
                               auto const values = copies[0].net.variables().body();
                               auto const apart =
                                   tiny::difference({values.begin(), values.end()}, tiny::reference(data));
                               voice.say(apart < 1e-5 ? "equal" : "other");
                             }};
  for (int worker : {0, 1}) CHECK(processes.line(worker) == "rows 279 ranks 0 1");
  for (int server : {2, 3}) CHECK(processes.line(server) == "rows 0 ranks");
  CHECK(processes.line(0) == processes.line(1));  // the same loss, and the same bits
  if (std::is_same_v<TestType, Synchronous>)
    for (int worker : {0, 1}) CHECK(processes.line(worker) == "equal");
  for (int i = 0; i < 4; ++i) CHECK(processes.exit(i) == 0);
}

TEST_CASE("after finish copies have the same bits, however far apart the workers were",
          "[strategy][servers][processes]") {
  constexpr auto rounds = 5;
  auto const job        = Four{};
  auto processes        = Processes{4, [&](int me, Voice voice) {
                               auto const rows = tiny::batch<int>(16, 64, 1);
                               auto live       = Live{ParameterServerStrategy{job.cluster(me), Asynchronous{}},
                                                RingAllReduce{}, TcpTransport{.log = [](std::string const&) {}}};
                               auto copies     = live.create(tiny::learner(), 7);
                               for (int round = 0; round < rounds; ++round) {
                                 live.run(
                                     [&](auto& replica, auto& copy) {
                                       for (int step = 0; step < (me == round % 2 ? 50 : 0); ++step) {
                                         auto gradients = replica.value_and_gradient(copy, rows.view()).gradients;
                                         live.update(replica, copy, gradients);
                                       }
                                     },
                                     copies);
                                 live.finish(copies);
                                 if (me < 2) voice.say(std::to_string(copies[0].hash()));
                               }
                             }};
  auto hashes           = std::vector<std::string>{};
  for (int round = 0; round < rounds; ++round) {
    hashes.push_back(processes.line(0));
    CHECK(hashes.back() == processes.line(1));
    if (round > 0) CHECK(hashes.back() != hashes[hashes.size() - 2]);
  }
  for (int i = 0; i < 4; ++i) CHECK(processes.exit(i) == 0);
}

TEST_CASE("what a killed worker would have told is missed by reduce, and named by gather",
          "[strategy][servers][processes]") {
  auto const job = Four{};
  auto processes = Processes{4, [&](int me, Voice voice) {
                               auto live   = Live{ParameterServerStrategy{job.cluster(me), Asynchronous{}},
                                                RingAllReduce{}, TcpTransport{.log = [](std::string const&) {}}};
                               auto copies = live.create(tiny::learner(), 7);
                               if (me >= 2) return;  // serves until the others have ended
                               auto losses  = PerReplica<Sum<float>>(1);
                               losses[0]    = {static_cast<float>(me + 1), 10};
                               auto const a = live.reduce(losses);
                               voice.say(std::to_string(a.count));
                               if (me == 1) std::raise(SIGKILL);
                               auto const b = live.reduce(losses);
                               voice.say(std::to_string(b.count) + " " + std::to_string(b.value));
                               try {
                                 live.gather(losses);
                               } catch (PeerLost const& lost) { voice.say(lost.what()); }
                               voice.say(std::to_string(live.reduce(losses).count));  // and it goes on
                             }};
  CHECK(processes.line(1) == "20");
  CHECK(processes.line(0) == "20");
  CHECK(processes.line(0) == "10 1.000000");
  CHECK(processes.line(0).find("gather got the values of 1 of 2 replicas: worker 1 is lost.") != std::string::npos);
  CHECK(processes.line(0) == "10");
  for (int i = 0; i < 4; ++i) CHECK(processes.exit(i) == (i == 1 ? 128 + SIGKILL : 0));
}

TEMPLATE_TEST_CASE("T3, T5: a killed worker, chief or not, is only missed", "[strategy][servers][processes]",
                   Asynchronous, Synchronous) {
  auto const victim = GENERATE(0, 1);
  auto const job    = Four{};
  auto processes =
      Processes{4, [&](int me, Voice voice) { live(job, me, voice, TestType{}, me == victim ? 1'000'000 : 200); }};
  CHECK(processes.line(victim) == "there");
  processes.send(victim, SIGKILL);
  CHECK(processes.line(1 - victim) == "there");
  CHECK(processes.line(1 - victim) == "ended");
  for (int server : {2, 3}) {
    auto const line = processes.line(server);
    INFO(line);
    CHECK(line.find("ended lost 1 pushes ") == 0);
    auto text   = std::istringstream{line.substr(20)};
    auto pushes = std::size_t{0};
    text >> pushes;
    CHECK(pushes >= 200 + 20);  // of the survivor, and before the end
  }
  for (int i = 0; i < 4; ++i) CHECK(processes.exit(i) == (i == victim ? 128 + SIGKILL : 0));
}

TEMPLATE_TEST_CASE("T7: a worker that stands still is missed, and comes back to nobody",
                   "[strategy][servers][processes]", Asynchronous, Synchronous) {
  constexpr auto limits = Timeouts{.heartbeat   = std::chrono::milliseconds{100},
                                   .warn_silent = std::chrono::milliseconds{500},
                                   .dead        = std::chrono::milliseconds{1500}};
  auto const job        = Four{};
  auto processes =
      Processes{4, [&](int me, Voice voice) { live(job, me, voice, TestType{}, me == 1 ? 1'000'000 : 200, limits); }};
  CHECK(processes.line(1) == "there");
  processes.send(1, SIGSTOP);
  CHECK(processes.line(0) == "there");
  CHECK(processes.line(0) == "ended");
  CHECK(processes.line(2).find("ended lost 1 pushes ") == 0);
  CHECK(processes.line(3).find("ended lost 1 pushes ") == 0);
  processes.send(1, SIGCONT);
  CHECK(processes.line(1).find("lost ") == 0);
  CHECK(processes.exit(1) == 138);
}

TEST_CASE("T4: a killed server ends its workers within a second, and they name the shard",
          "[strategy][servers][processes]") {
  auto const job = Four{};
  auto processes = Processes{4, [&](int me, Voice voice) { live(job, me, voice, Asynchronous{}, 1'000'000); }};
  CHECK(processes.line(0) == "there");
  CHECK(processes.line(1) == "there");
  auto const killed = seconds_now();
  processes.send(3, SIGKILL);
  for (int worker : {0, 1}) {
    auto const line = processes.line(worker);
    INFO(line);
    CHECK(line.find("lost 3 ") == 0);
    CHECK(line.find("server 1 of 2 (rank 3) is gone") != std::string::npos);
    auto text = std::istringstream{line.substr(7)};
    auto when = 0.0;
    text >> when;
    CHECK(when - killed < 1.0);
    CHECK(processes.exit(worker) == 138);
  }
  CHECK(processes.line(2).find("ended lost 2") == 0);
  CHECK(processes.exit(2) == 0);
}
