// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

#include <iomanip>
#include <iostream>

namespace {

/// One line per test case, which tools/test counts: "PASSED: name (12 checks, 0.31 s)".
struct OneLinePerCase : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(Catch::TestCaseInfo const& info) override {
    TestEventListenerBase::testCaseStarting(info);
    timer_.start();
  }

  void testCaseEnded(Catch::TestCaseStats const& stats) override {
    auto const& totals = stats.totals;
    std::cout << (totals.testCases.failed > 0 ? "FAILED: " : "PASSED: ") << stats.testInfo.name << " ("
              << totals.assertions.total() << " checks, " << std::fixed << std::setprecision(2)
              << timer_.getElapsedSeconds() << " s)" << std::endl;
    TestEventListenerBase::testCaseEnded(stats);
  }

 private:
  Catch::Timer timer_;
};

CATCH_REGISTER_LISTENER(OneLinePerCase)

}  // namespace
