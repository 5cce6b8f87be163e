// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chorale {

/// Time in a simulation: whole picoseconds, so that sums are exact and the same in every run; up to 106 days.
using VirtualTime = std::chrono::duration<std::int64_t, std::pico>;

constexpr double seconds(VirtualTime t) { return std::chrono::duration<double>(t).count(); }

/// Returns that many seconds, rounded to a picosecond.
constexpr VirtualTime virtual_seconds(double s) { return VirtualTime{static_cast<std::int64_t>(s * 1e12 + 0.5)}; }

/// One kind of line: latency (alpha) and speed (1/beta). Both directions have that speed at once.
struct NetworkLine {
  VirtualTime latency     = std::chrono::microseconds{10};
  double bytes_per_second = 12.5e9;

  friend constexpr bool operator==(NetworkLine const&, NetworkLine const&) = default;
};

/// The cost of messages and computing in a simulation.
///
///   spine        rack 0 ───────────── rack 1          a rack's uplink: hosts_per_rack lines / oversubscription
///   network       ├ host 0             ├ host 2       a host has one line `far`, which its ranks share
///                 └ host 1             └ host 3
///   host             ├ rank 0, port                   each rank has a port `near`, to ranks of its host
///                    └ rank 1, port
///
/// A message of n bytes takes the sender's processor for `overhead`, leaves when every line of its path is free, keeps
/// each of them busy for n / its speed, and arrives one latency (between racks: two) and n / the slowest speed later.
/// It takes the receiver's processor for `overhead` and n / fold_bytes_per_second when it is received: every byte that
/// is received is charged as one that is folded, or copied. Nothing else takes time, except work().
///
/// On a clean network (one rank per host, one rack, no noise) with o = overhead, a = latency, b = 1 / bytes_per_second,
/// g = 1 / fold_bytes_per_second, S bytes in one lane, the last rank is done after exactly
///
///   ring, P divides the elements       2 (P-1) (2o + a + (b + g) S/P)
///   halving-doubling, P = 2^k          2k (2o + a) + 2 (b + g) S (P-1)/P
///   recursive doubling, P = 2^k        k (2o + a + (b + g) S)
///   tree, P = 2^k - 1                  (k-1) (2o + a + (b + g) S + max(b S, o + g S)      up: two children, one port
///                                            + 2o + a + (b + g) S + max(b S, o))          down
///
/// each as a sum of messages, with every term n b and n g rounded to a picosecond.
///
/// slow        the share of ranks that compute `slowness` times as long, overheads included; chosen by the seed
/// noise       each latency and each piece of computing takes up to that share longer, drawn from the seed
struct NetworkModel {
  VirtualTime overhead         = std::chrono::nanoseconds{500};  // o
  double fold_bytes_per_second = 20e9;                           // 1/gamma
  NetworkLine near{std::chrono::microseconds{1}, 50e9};
  NetworkLine far{};
  int ranks_per_host      = 1;
  int hosts_per_rack      = 0;  // 0: one rack
  double oversubscription = 1;
  double slow = 0, slowness = 1, noise = 0;
  Seed seed = 1;

  int host_of(Rank rank) const { return rank / ranks_per_host; }
  int rack_of(Rank rank) const { return hosts_per_rack == 0 ? 0 : host_of(rank) / hosts_per_rack; }

  /// The time that n bytes take at that speed.
  static VirtualTime time_of(std::size_t n, double bytes_per_second) {
    return VirtualTime{std::llround(static_cast<double>(n) * 1e12 / bytes_per_second)};
  }

  bool is_slow(Rank rank) const {
    return slow > 0 && static_cast<double>(Random{seed, 1}.uniform(static_cast<std::uint64_t>(rank))) < slow;
  }

  void check() const {
    CHORALE_EXPECTS(overhead.count() >= 0 && near.latency.count() >= 0 && far.latency.count() >= 0,
                    "a latency or overhead of a simulation is negative");
    CHORALE_EXPECTS(fold_bytes_per_second > 0 && near.bytes_per_second > 0 && far.bytes_per_second > 0,
                    "a speed of a simulation is not positive");
    CHORALE_EXPECTS(ranks_per_host >= 1 && hosts_per_rack >= 0 && oversubscription > 0,
                    "a simulation has " + std::to_string(ranks_per_host) + " ranks per host, " +
                        std::to_string(hosts_per_rack) + " hosts per rack and oversubscription " +
                        std::to_string(oversubscription));
    CHORALE_EXPECTS(slow >= 0 && slow <= 1 && slowness >= 1 && noise >= 0,
                    "a simulation has a share of slow ranks of " + std::to_string(slow) + ", slowness " +
                        std::to_string(slowness) + " and noise " + std::to_string(noise));
  }
};

/// The lines between ranks, and the time until which each is busy.
///
/// order   messages that need the same line leave in the order of depart(); no call has an earlier `at` than the last
class NetworkLines {
 public:
  struct Passage {
    VirtualTime left, arrives;  // the last byte, at either end
  };

  NetworkLines(NetworkModel const& model, int ranks) : model_{model}, ranks_{static_cast<std::size_t>(ranks)} {
    hosts_ = static_cast<std::size_t>(model.host_of(ranks - 1)) + 1;
    busy_.resize(2 * (ranks_ + hosts_ + static_cast<std::size_t>(model.rack_of(ranks - 1)) + 1));
  }

  Passage depart(Rank from, Rank to, std::size_t bytes, VirtualTime at, VirtualTime extra) {
    if (from == to) return {at, at};
    auto const path = path_of(from, to);
    auto start      = at;
    for (int i = 0; i < path.size; ++i) start = std::max(start, busy_[path.lines[static_cast<std::size_t>(i)]]);
    auto const far = NetworkModel::time_of(bytes, path.line->bytes_per_second);
    auto slowest   = far;
    for (int i = 0; i < path.size; ++i) {
      auto const uplink                              = path.size == 4 && (i == 1 || i == 2);
      auto const takes                               = uplink ? NetworkModel::time_of(bytes, uplink_speed()) : far;
      slowest                                        = std::max(slowest, takes);
      busy_[path.lines[static_cast<std::size_t>(i)]] = start + takes;
    }
    auto const left = start + slowest;
    return {left, left + (path.size == 4 ? 2 : 1) * path.line->latency + extra};
  }

  /// Keeps the first line from one rank to another busy: no later message on it leaves before `until`.
  void block(Rank from, Rank to, VirtualTime until) {
    if (from == to) return;
    auto& line = busy_[path_of(from, to).lines[0]];
    line       = std::max(line, until);
  }

  VirtualTime latency(Rank from, Rank to) const {
    auto const path = path_of(from, to);
    return (path.size == 4 ? 2 : 1) * path.line->latency;
  }

 private:
  struct Path {
    NetworkLine const* line;
    int size;
    std::array<std::size_t, 4> lines;
  };

  double uplink_speed() const { return model_.far.bytes_per_second * model_.hosts_per_rack / model_.oversubscription; }

  Path path_of(Rank from, Rank to) const {
    auto const a = static_cast<std::size_t>(model_.host_of(from)), b = static_cast<std::size_t>(model_.host_of(to));
    if (a == b) return {&model_.near, 2, {2 * static_cast<std::size_t>(from), 2 * static_cast<std::size_t>(to) + 1}};
    auto const out = 2 * (ranks_ + a), in = 2 * (ranks_ + b) + 1;
    auto const up = static_cast<std::size_t>(model_.rack_of(from)), down = static_cast<std::size_t>(model_.rack_of(to));
    if (up == down) return {&model_.far, 2, {out, in}};
    return {&model_.far, 4, {out, 2 * (ranks_ + hosts_ + up), 2 * (ranks_ + hosts_ + down) + 1, in}};
  }

  NetworkModel model_;
  std::size_t ranks_, hosts_ = 0;
  std::vector<VirtualTime> busy_;  // [line][out, in]: ranks, hosts, racks
};

}  // namespace chorale
