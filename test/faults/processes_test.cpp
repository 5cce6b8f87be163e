// SPDX-License-Identifier: Apache-2.0
// One rank is killed, stopped, asleep or interrupted: rows T1, T2, T7, T8, T9 and T40 of docs/65-robustness.md, over both transports.
#include "test/faults/told.hpp"
#include "test/support/storm.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

constexpr auto short_limits =
    Timeouts{.heartbeat = 100ms, .warn_silent = 300ms, .dead = 800ms, .warn_stuck = 300ms, .stuck = 30s, .join = 20s};
constexpr auto where             = CallSite{"train.cpp", 41};
constexpr std::uint64_t the_step = 5;  // of the deed

/// Trains; in step 5 calls `between`, and with the all-reduce on its way `within`. Without an end when steps is 0.
template <class T>
void train(T const& transport, int ranks, Rank rank, std::uint64_t steps, Voice voice,
           std::function<void()> const& between, std::function<void()> const& within) {
  auto at      = connected(transport, ranks, rank);
  auto weights = Weights{ranks};
  tell_end(voice, weights, [&] {
    for (std::uint64_t step = 0; steps == 0 || step < steps; ++step) {
      begin_step(at, step);
      if (step == the_step && between) between();
      auto reduction = RingAllReduce{}.start(at, weights.gradient(rank), Op::sum, Tag{}, where);
      if (step == the_step && within) within();
      reduction.finish();
      weights.apply();
    }
  });
}

std::string now_text() {
  auto out = std::ostringstream{};
  out.precision(17);
  out << seconds_now();
  return out.str();
}

/// Says when, and does it to this process.
std::function<void()> raise(Voice voice, int signal) {
  return [=] {
    voice.say(now_text());
    ::raise(signal);
  };
}

/// What this process writes to its standard error stream, for as long as this lives; then it is said in one line.
class Overheard {
 public:
  explicit Overheard(Voice voice) : voice_{voice}, before_{::dup(2)}, file_{::memfd_create("stderr", MFD_CLOEXEC)} {
    ::dup2(file_, 2);
  }
  ~Overheard() {
    ::dup2(before_, 2);
    auto text       = std::array<char, 3'000>{};
    auto const n    = ::pread(file_, text.data(), text.size(), 0);
    auto const said = std::string(text.data(), static_cast<std::size_t>(std::max<::ssize_t>(n, 0)));
    if (said.find("Sanitizer") != said.npos) [[maybe_unused]]
      auto const told = ::write(2, said.data(), said.size());
    voice_.say(said);
  }

 private:
  Voice voice_;
  int before_, file_;
};

}  // namespace

TEMPLATE_TEST_CASE("T1: a rank that is killed with an operation on its way is the first cause for all others",
                   "[faults][processes]", TcpTransport, SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 3, 4);
  auto const culprit   = ranks / 2;
  auto const transport = between_processes<TestType>(ranks, {.join = 20s});
  auto processes =
      Processes{ranks, [&](Rank rank, Voice voice) {
                  train(transport, ranks, rank, 0, voice, {}, rank == culprit ? raise(voice, SIGKILL) : nullptr);
                }};
  auto const since = std::stod(processes.line(culprit));
  auto const all   = check_survivors(processes, ranks, culprit, Fault::peer_lost, since, 0, 1);
  for (auto const& told : all) {
    CHECK(told.updates + 1 >= the_step);  // its last bytes may have gone with it
    CHECK(told.updates <= the_step + 1);  // or all it had to send was gone already
    CHECK_THAT(told.text, Catch::Contains("all_reduce (sum) of 100003 float, tag 0, at train.cpp:41"));
  }
  CHECK(processes.exit(culprit) == 128 + SIGKILL);
}

TEMPLATE_TEST_CASE("T1: a child that a killed rank has forked does not hide its end", "[faults][processes]",
                   TcpTransport, SharedMemoryTransport) {
  constexpr auto ranks = 3, culprit = 1;
  auto const transport = between_processes<TestType>(ranks, {.join = 20s});
  auto processes =
      Processes{ranks, [&](Rank rank, Voice voice) {
                  auto const die = [voice] {
                    auto const child = ::fork();
                    if (child == 0)
                      for (::alarm(60);;) ::pause();  // it has all descriptors of its parent
                    voice.say(std::to_string(child));
                    raise(voice, SIGKILL)();
                  };
                  train(transport, ranks, rank, 0, voice, {}, rank == culprit ? std::function<void()>{die} : nullptr);
                }};
  auto const child = std::stoi(processes.line(culprit));
  auto const since = std::stod(processes.line(culprit));
  check_survivors(processes, ranks, culprit, Fault::peer_lost, since, 0, 1);
  CHECK(::kill(child, SIGKILL) == 0);  // it has lived until now
}

TEMPLATE_TEST_CASE("T2: a rank that is killed between steps is the first cause, and no update comes after it",
                   "[faults][processes]", TcpTransport, SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 3, 4);
  auto const transport = between_processes<TestType>(ranks, {.join = 20s});
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) {
                               train(transport, ranks, rank, 0, voice, rank == 0 ? raise(voice, SIGKILL) : nullptr, {});
                             }};
  auto const since     = std::stod(processes.line(0));
  for (auto const& told : check_survivors(processes, ranks, 0, Fault::peer_lost, since, 0, 1))
    CHECK(told.updates <= the_step);
}

TEMPLATE_TEST_CASE("T7: a rank that is stopped is warned of, declared dead in time, and evicted when it comes back",
                   "[faults][processes]", TcpTransport, SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 4);
  auto const transport = between_processes<TestType>(ranks, short_limits);
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) {
                               auto const overheard = Overheard{voice};
                               train(transport, ranks, rank, 0, voice, {}, rank == 1 ? raise(voice, SIGSTOP) : nullptr);
                             }};
  auto const since     = std::stod(processes.line(1));
  check_survivors(processes, ranks, 1, Fault::peer_stalled, since, 0.8, 1.8);
  for (Rank rank = 0; rank < ranks; ++rank)
    if (rank != 1)
      CHECK_THAT(processes.line(rank), Catch::Contains("waiting 0.3") || Catch::Contains("waiting 300 ms"));
  processes.send(1, SIGCONT);
  auto const back = Told::parse(processes.line(1));
  CHECK(back.is(Fault::evicted));
  CHECK(back.culprit == 1);
  CHECK(processes.exit(1) == 138);
}

TEMPLATE_TEST_CASE("T8: a rank that is stopped for less than the limit changes no bit", "[faults][processes]",
                   TcpTransport, SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 3, 4);
  auto const transport = between_processes<TestType>(ranks, short_limits);
  auto processes =
      Processes{ranks, [&](Rank rank, Voice voice) {
                  train(transport, ranks, rank, 20, voice, {}, rank == 1 ? raise(voice, SIGSTOP) : nullptr);
                }};
  auto const until = std::stod(processes.line(1)) + 0.24;  // 0.3 of `dead`
  spin_until([&] { return seconds_now() > until; });
  processes.send(1, SIGCONT);
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const told = Told::parse(processes.line(rank));
    INFO("rank " << rank << ": " << told.line());
    CHECK(told.fault == -1);
    CHECK(told.updates == 20);
    CHECK(told.whole);
    CHECK(told.at > until);
    CHECK(processes.exit(rank) == 0);
  }
}

TEMPLATE_TEST_CASE("T9: a rank that lives but does not work is named by all others, with a warning before",
                   "[faults][processes]", TcpTransport, SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 3);
  auto timeouts        = short_limits;
  timeouts.stuck       = 800ms;
  auto const transport = between_processes<TestType>(ranks, timeouts);
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) {
                               auto const overheard = Overheard{voice};
                               train(transport, ranks, rank, 0, voice, rank == 0 ? [voice] {
      voice.say(now_text());
      for (;;) ::pause();
    } : std::function<void()>{}, {});
                             }};
  auto const since     = std::stod(processes.line(0));
  auto const all = check_survivors(processes, ranks, 0, Fault::peer_stalled, since, 0.7, 1.8);  // some wait before
  for (auto const& told : all) CHECK(told.updates == the_step);
  for (Rank rank = 1; rank < ranks; ++rank) CHECK_THAT(processes.line(rank), Catch::Contains("for rank 0"));
}

TEMPLATE_TEST_CASE("T40: a storm of signals changes no bit", "[faults][processes]", TcpTransport,
                   SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 3);
  auto const transport = between_processes<TestType>(ranks, short_limits);
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) {
                               auto const storm = Storm{};
                               train(transport, ranks, rank, 200, voice, {}, {});
                               voice.say(std::to_string(storm.signals()));
                             }};
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const told = Told::parse(processes.line(rank));
    INFO("rank " << rank << ": " << told.line());
    CHECK(told.fault == -1);
    CHECK(told.updates == 200);
    CHECK(told.whole);
    CHECK(std::stoi(processes.line(rank)) > 20);
    CHECK(processes.exit(rank) == 0);
  }
}
