// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/support/processes.hpp"

#include <chorale/core/error.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>
#include <chorale/transport/timeouts.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace chorale::test {

/// What a rank knows when it is over, as the last line of its voice.
struct Told {
  double at          = 0;   // seconds_now()
  int fault          = -1;  // a Fault; -1: all went well
  Rank culprit       = -1;
  std::uint64_t step = 0, sequence = 0;  // of the loss
  std::uint64_t updates = 0;             // that it applied; see Weights
  bool whole            = false;         // no update is there in part
  std::string text;                      // of a Disagreement the whole sentence

  static Told parse(std::string const& line) {
    auto told = Told{};
    auto in   = std::istringstream{line};
    in >> told.at >> told.fault >> told.culprit >> told.step >> told.sequence >> told.updates >> told.whole;
    in.ignore();
    std::getline(in, told.text);
    return told;
  }

  std::string line() const {
    auto out = std::ostringstream{};
    out.precision(17);
    out << at << ' ' << fault << ' ' << culprit << ' ' << step << ' ' << sequence << ' ' << updates << ' ' << whole
        << ' ' << text;
    return out.str();
  }

  bool is(Fault f) const { return fault == static_cast<int>(f); }
};

/// Numbers that ranks train together. All are whole and small, so that a sum is the same in any order.
class Weights {
 public:
  explicit Weights(int ranks, std::size_t n = 100'003) : ranks_{ranks}, values_(n), gradient_(n) {}

  std::uint64_t updates() const { return updates_; }

  /// The gradient of this rank for the next update.
  Span<float> gradient(Rank rank) {
    std::ranges::fill(gradient_, static_cast<float>(rank + 1) * rate(updates_));
    return gradient_;
  }

  void apply() {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] += gradient_[i];
    ++updates_;
  }

  /// Every value has the bits that an undisturbed run has after as many updates.
  bool whole() const {
    auto value = 0.0F;
    for (std::uint64_t i = 0; i < updates_; ++i) value += static_cast<float>(ranks_ * (ranks_ + 1) / 2) * rate(i);
    return std::ranges::all_of(values_, [&](float x) { return x == value; });
  }

 private:
  static float rate(std::uint64_t step) { return static_cast<float>(step % 7 + 1); }

  int ranks_;
  std::uint64_t updates_ = 0;
  std::vector<float> values_, gradient_;
};

/// Calls `work`, and says how it ended. What it throws goes on, so that it becomes the exit code.
template <class Work> void tell_end(Voice voice, Weights const& weights, Work work) {
  auto const told = [&](int fault, std::string text) {
    return Told{seconds_now(), fault, -1, 0, 0, weights.updates(), weights.whole(), std::move(text)};
  };
  try {
    work();
  } catch (PeerLost const& lost) {
    auto const& l = lost.loss();
    auto end      = told(static_cast<int>(l.fault), l.operation + " host " + l.host + ' ' + l.reason);
    end.culprit   = l.rank;
    end.step      = l.step;
    end.sequence  = l.sequence;
    voice.say(end.line());
    throw;
  } catch (Disagreement const& error) {
    voice.say(told(static_cast<int>(error.fault()), error.what()).line());
    throw;
  }
  voice.say(told(-1, "done").line());
}

/// A transport for ranks that are processes of this host.
template <class T> T between_processes(int ranks, Timeouts const& timeouts);

template <> inline TcpTransport between_processes(int ranks, Timeouts const& timeouts) {
  return {.addresses = free_loopback_addresses(ranks), .timeouts = timeouts};
}
template <> inline SharedMemoryTransport between_processes(int, Timeouts const& timeouts) {
  static int number = 0;
  return {.name = "test-faults-" + std::to_string(::getpid()) + "-" + std::to_string(++number), .timeouts = timeouts};
}

template <class T> typename T::endpoint connected(T const& transport, int ranks, Rank rank) {
  return std::move(transport.connect(Group{ranks, {rank}})[0]);
}

/// Says that this test cannot run here, so that it is counted as skipped.
inline void skip(std::string const& test, std::string const& why) {
  std::printf("SKIPPED: %s: %s\n", test.c_str(), why.c_str());
}

/// One loss for all: the same fault, culprit, operation, sequence, step and reason.
inline void check_same_loss(Told const& a, Told const& b) {
  CHECK(a.fault == b.fault);
  CHECK(a.culprit == b.culprit);
  CHECK(a.sequence == b.sequence);
  CHECK(a.step == b.step);
  CHECK(a.text == b.text);
}

/// All ranks but the culprit tell one loss, which names it, from `least` to `most` seconds after `since`, and have
/// whole updates only, at most one more than another.
inline std::vector<Told> check_survivors(Processes& processes, int ranks, Rank culprit, Fault fault, double since,
                                         double least, double most) {
  auto all = std::vector<Told>{};
  for (Rank rank = 0; rank < ranks; ++rank) {
    if (rank == culprit) continue;
    all.push_back(Told::parse(processes.line(rank)));
    auto const& told = all.back();
    INFO("rank " << rank << " of " << ranks << " after " << told.at - since << " s: " << told.line());
    CHECK(told.is(fault));
    CHECK(told.culprit == culprit);
    CHECK(told.at - since >= least);
    CHECK(told.at - since <= most);
    CHECK(told.whole);
    CHECK(told.updates <= all[0].updates + 1);
    CHECK(all[0].updates <= told.updates + 1);
    check_same_loss(told, all[0]);
    CHECK(processes.exit(rank) == 138);
  }
  return all;
}

}  // namespace chorale::test
