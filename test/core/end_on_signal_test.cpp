// SPDX-License-Identifier: Apache-2.0
#include "test/support/processes.hpp"

#include <chorale/core/end_on_signal.hpp>

#include <catch2/catch.hpp>

#include <csignal>
#include <string>

#include <unistd.h>

namespace end_on_signal_test {

using chorale::BadArgument;
using chorale::EndOnSignal;
using chorale::test::Processes;
using chorale::test::seconds_now;
using chorale::test::Voice;

TEST_CASE("each signal of a list asks, and afterwards does what it did before", "[core]") {
  auto const nothing = [](int) {};
  for (int const signal : {SIGTERM, SIGINT, SIGUSR1}) {
    std::signal(signal, nothing);
    {
      auto const end = EndOnSignal{SIGTERM, SIGINT, SIGUSR1};
      CHECK(!*end.asked());
      std::raise(signal);
      CHECK(*end.asked());
    }
    CHECK(std::signal(signal, SIG_DFL) == static_cast<void (*)(int)>(nothing));
  }
  auto const end = EndOnSignal{};  // SIGTERM alone
  CHECK(std::signal(SIGINT, SIG_DFL) == SIG_DFL);
  std::raise(SIGTERM);
  CHECK(*end.asked());
}

TEST_CASE("a signal that cannot be caught is refused, and changes nothing", "[core]") {
  for (int const signal : {SIGKILL, 0, 1000})
    CHECK_THROWS_WITH((EndOnSignal{SIGUSR1, signal}),
                      Catch::Contains("EndOnSignal: signal " + std::to_string(signal) + " cannot be caught."));
  CHECK_THROWS_AS(EndOnSignal{SIGSTOP}, BadArgument);
  CHECK(std::signal(SIGUSR1, SIG_DFL) == SIG_DFL);
}

TEST_CASE("a signal ends the process only when it comes some time after the first", "[core][processes]") {
  auto first = SIGTERM, then = SIGTERM;
  SECTION("the same") {}
  SECTION("another") { first = SIGUSR1; }
  auto process = Processes{1,
                           [&](int, Voice voice) {
                             auto const end   = EndOnSignal{SIGTERM, SIGUSR1};
                             auto const begin = seconds_now();
                             for (auto next = first;; next = then) {
                               voice.say(std::to_string(seconds_now() - begin));
                               std::raise(next);
                               ::usleep(20'000);
                             }
                           },
                           60};
  auto last    = 0.0;
  for (auto said = process.line(0); !said.empty(); said = process.line(0)) last = std::stod(said);
  CHECK(last >= 1.99);
  CHECK(process.exit(0) == 128 + then);
}

}  // namespace end_on_signal_test
