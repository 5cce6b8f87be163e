// SPDX-License-Identifier: Apache-2.0
// A worker, or a server, is killed: rows T4 and T5 of docs/65-robustness.md. Processes.
#include "test/strategy/parameter_server/parameter_job.hpp"
#include "test/support/processes.hpp"

#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <csignal>
#include <sstream>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t n = 3'000'000;  // 6 MB on each of two servers
constexpr int workers = 2, servers = 2, ranks = workers + servers;

parameter_server::ShardLayout two_halves() {
  return {workers, {{{plan::header, plan::header + n / 2}}, {{plan::header + n / 2, plan::header + n}}}};
}

template <class T> T transport() {
  static auto jobs = 0;
  auto to          = T{};
  to.timeouts      = {.heartbeat = 100ms, .warn_silent = 300ms, .dead = 800ms, .stuck = 30s, .join = 20s};
  to.failures      = FailureScope::peer;
  if constexpr (requires { to.log; }) to.log = [](std::string const&) {};
  if constexpr (requires { to.addresses; }) {
    to.addresses = free_loopback_addresses(ranks);
  } else {
    to.name  = "servers-" + std::to_string(::getpid()) + "-" + std::to_string(jobs++);
    to.arena = flat_size(n) * sizeof(float);
  }
  return to;
}

/// Ends its process in the middle of a push.
struct Killer {
  int at     = 0;  // which push; 0: none
  int pushes = 0;
  void in_push() {
    if (++pushes == at) ::kill(::getpid(), SIGKILL);
  }
};

/// Each push takes so much from every value.
std::vector<float> gradient_of(float each) {
  auto flat               = std::vector<float>(flat_size(n), each);
  StepHeader{flat}.loss() = StepHeader{flat}.rows() = 1;
  StepTrailer{flat}.faults()                        = 0;
  StepTrailer{flat}.summed()                        = 1;
  return flat;
}

/// The same where servers read it, if they can.
template <class E> Gradients placed(E& at, std::vector<float>& gradient) {
  if constexpr (ReadsInPlace<E>) {
    auto const memory = Span<float>{reinterpret_cast<float*>(at.memory().data()), gradient.size()};
    std::ranges::copy(gradient, memory.begin());
    return {memory, {}, {}};
  } else {
    return gradients_in(gradient);
  }
}

/// What a server has in the end.
struct Held {
  float value = 0;  // all have it when whole
  bool whole  = false;
  parameter_server::ServerStatistics ledger{};

  static Held parse(std::string const& line) {
    auto held = Held{};
    auto in   = std::istringstream{line};
    in >> held.value >> held.whole >> held.ledger.applied >> held.ledger.cut_off >> held.ledger.lost >>
        held.ledger.updates;
    return held;
  }
};

template <class C, class E> void serve(E& at, C consistency, Voice voice) {
  auto service = parameter_server::Server{at, consistency, optim::SGD{.learning_rate = 1}, two_halves(),
                                          std::vector<float>(flat_size(n))};
  service.serve();
  auto const values  = service.shard().values();
  auto const& ledger = service.ledger();
  auto const whole   = std::ranges::all_of(values, [&](float x) { return x == values[0]; });
  auto line          = std::ostringstream{};
  line << values[0] << ' ' << whole << ' ' << ledger.applied << ' ' << ledger.cut_off << ' ' << ledger.lost << ' '
       << ledger.updates;
  voice.say(line.str());
}

template <class T, class C> void kill_worker(C consistency) {
  constexpr int steps = 12, last = 4;  // worker 1 dies in its fourth push
  auto const over = transport<T>();
  auto processes  = Processes(ranks, [&](int rank, Voice voice) {
    auto at = std::move(over.connect(Group{ranks, {rank}})[0]);
    if (rank >= workers) return serve(at, consistency, voice);
    auto client =
        parameter_server::Client<typename T::endpoint, Killer>{at, two_halves(), {}, Killer{rank == 1 ? last : 0}};
    auto values    = std::vector<float>(flat_size(n));
    auto own       = gradient_of(rank == 0 ? 1 : 1'000);
    auto gradients = placed(at, own);
    for (int step = 0; step < steps; ++step) {
      client.push(gradients, 0);
      client.pull(variables_in(values));
    }
    client.leave();
    voice.say("done");
  });
  CHECK(processes.line(0) == "done");
  CHECK(processes.exit(0) == 0);
  CHECK(processes.exit(1) == 128 + SIGKILL);
  for (int rank : {2, 3}) {
    auto const held = Held::parse(processes.line(rank));
    INFO("rank " << rank << " has " << held.value << ", applied " << held.ledger.applied);
    CHECK(held.whole);
    CHECK(held.ledger.lost == 1);
    auto const of_killed = held.ledger.applied - steps;  // its last push is there wholly, or not
    CHECK((of_killed == last - 1 || of_killed == last));
    CHECK(held.ledger.applied + held.ledger.cut_off <= steps + last);
    if constexpr (C::rounds) {
      CHECK(held.ledger.updates == steps);
      auto const both = static_cast<float>(of_killed) * (1 + 1'000) / 2;  // a mean over one row of each
      CHECK(held.value == -both - static_cast<float>(steps - of_killed));
    } else {
      CHECK(held.value == -static_cast<float>(of_killed) * 1'000 - static_cast<float>(steps));
    }
    CHECK(processes.exit(rank) == 0);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("a worker killed in a push is only missed: its push is applied wholly or not at all",
                   "[strategy][ps]", SharedMemoryTransport, TcpTransport) {
  SECTION("asynchronous") { kill_worker<TestType>(Asynchronous{}); }
  SECTION("in rounds") { kill_worker<TestType>(Synchronous{}); }
}

TEMPLATE_TEST_CASE("a killed server is a PeerLost that names its shard, on all workers within a second",
                   "[strategy][ps]", SharedMemoryTransport, TcpTransport) {
  auto const over = transport<TestType>();
  auto processes  = Processes(ranks, [&](int rank, Voice voice) {
    auto at = std::move(over.connect(Group{ranks, {rank}})[0]);
    if (rank >= workers) return serve(at, Synchronous{}, voice);
    auto client    = parameter_server::Client{at, two_halves()};
    auto values    = std::vector<float>(flat_size(n));
    auto own       = gradient_of(1);
    auto gradients = placed(at, own);
    for (int step = 0;; ++step) {
      if (step == 5) voice.say("training");
      try {
        client.push_and_pull(gradients, variables_in(values), 0);
      } catch (PeerLost const& lost) {
        auto told = std::ostringstream{};
        told.precision(17);
        told << seconds_now() << ' ' << lost.rank() << ' ' << lost.what();
        voice.say(told.str());
        throw;
      }
    }
  });
  CHECK(processes.line(0) == "training");
  CHECK(processes.line(1) == "training");
  auto const since = seconds_now();
  processes.send(3, SIGKILL);
  for (int worker : {0, 1}) {
    auto in      = std::istringstream{processes.line(worker)};
    auto at      = 0.0;
    auto culprit = -1;
    auto text    = std::string{};
    in >> at >> culprit;
    std::getline(in, text);
    CHECK(at - since < 1.0);
    CHECK(culprit == 3);
    CHECK_THAT(text, Catch::Contains("server 1 of 2 (rank 3) is gone; it held 6000000 of 12000000 bytes"));
    CHECK(processes.exit(worker) == 138);
  }
  auto const held = Held::parse(processes.line(2));  // the other one sees both workers go
  CHECK(held.whole);
  CHECK(held.ledger.lost == 2);
  CHECK(processes.exit(2) == 0);
}
