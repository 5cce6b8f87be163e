// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/timeouts.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Position of a rank, and whether its working thread waits for others.
struct RankProgress {
  std::uint64_t step = 0, sequence = 0, moved = 0;  // moved: bytes sent and received
  bool waits = false, polls = false;                // polls: checks, but does not wait

  bool same_place(RankProgress const& other) const {
    return step == other.step && sequence == other.sequence && moved == other.moved;
  }
};

/// Detects dead and stuck peers by what they send, and when. Each condition has a timeout for a warning and for a fault:
///
///   silence       nothing arrives from a rank             warn_silent, dead
///   no progress   this rank waits, and nothing moves      warn_stuck, stuck
///
/// The awaited rank is not always the stuck one, because it may wait, too: of the ranks without progress, one that does
/// not wait is reported, else the one with the earliest position. With FailureScope::peer, the awaited rank is reported,
/// unless it polls: then it is ready for any message.
///
/// keeps   time in which this process itself was stopped does not count. A heartbeat in flight is allowed for: a fault
///         is reported `dead` after a rank stopped, not earlier
class FailureDetector {
 public:
  using Clock = std::chrono::steady_clock;
  using Time  = Clock::time_point;

  struct DetectedFailure {
    Rank rank;
    std::string reason;
  };

  FailureDetector(Timeouts const& timeouts, FailureScope failures, Rank me, int size, Time now)
      : timeouts_{timeouts}, failures_{failures}, me_{me}, peers_(static_cast<std::size_t>(size)), checked_{now},
        moved_at_{now} {}

  /// Sets and returns the time between two checks.
  ///
  /// per_heartbeat   checks in the time from one heartbeat to the next
  std::chrono::nanoseconds tick(int per_heartbeat) {
    return tick_ = std::max<std::chrono::nanoseconds>(timeouts_.heartbeat / per_heartbeat, shortest);
  }

  void begin(Rank rank, Time now) { peer(rank) = {.watched = true, .heard = now, .moved = now}; }
  void end(Rank rank) { peer(rank).watched = false; }

  void heard(Rank rank, Time now) {
    peer(rank).heard  = now;
    peer(rank).warned = false;
  }

  void heard(Rank rank, RankProgress const& at, std::string host, Time now) {
    auto& p = peer(rank);
    heard(rank, now);
    if (!p.at.same_place(at)) p.moved = now;
    p.at   = at;
    p.host = std::move(host);
  }

  std::string const& host(Rank rank) const { return peers_[static_cast<std::size_t>(rank)].host; }

  /// Returns a peer that is dead or stuck, with the reason; empty if there is none.
  ///
  /// mine    position of this rank
  /// for_    the rank that it waits for
  /// warn    called with the text of a warning
  template <class Warn> std::optional<DetectedFailure> check(RankProgress const& mine, Rank for_, Time now, Warn warn) {
    forgive(now);
    for (Rank rank = 0; rank < size(); ++rank) {
      auto& p           = peer(rank);
      auto const silent = now - p.heard;
      if (!p.watched || rank == me_) continue;
      if (silent >= timeouts_.dead + std::min<std::chrono::nanoseconds>(timeouts_.heartbeat, quarter))
        return DetectedFailure{rank, "no sign of life for " + seconds(silent)};
      if (silent >= timeouts_.warn_silent && !std::exchange(p.warned, true)) warn(line(mine, rank, silent, now));
    }
    return check_progress(mine, for_, now, warn);
  }

 private:
  static constexpr std::chrono::nanoseconds shortest = std::chrono::milliseconds{1};
  static constexpr std::chrono::nanoseconds quarter  = std::chrono::milliseconds{250};

  struct Peer {
    bool watched = false, warned = false;
    Time heard{}, moved{};  // times of the last frame, last progress
    RankProgress at{};
    std::string host{};
  };

  int size() const { return static_cast<int>(peers_.size()); }
  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }

  void forgive(Time now) {
    auto const late = now - checked_ - tick_;
    checked_        = now;
    if (late < tick_) return;
    moved_at_ += late;
    for (auto& p : peers_) {
      p.heard += late;
      p.moved += late;
    }
  }

  template <class Warn>
  std::optional<DetectedFailure> check_progress(RankProgress const& mine, Rank for_, Time now, Warn warn) {
    auto const apart = failures_ == FailureScope::peer;
    if (!mine.waits || !mine.same_place(mine_) || (apart && for_ != awaited_)) {
      moved_at_ = now;
      warned_   = false;
    }
    mine_            = mine;
    awaited_         = for_;
    auto const stood = now - moved_at_;
    if (stood < std::min(timeouts_.warn_stuck, timeouts_.stuck)) return std::nullopt;
    auto const culprit = apart ? awaited(now) : furthest_behind(now);
    if (culprit && stood >= timeouts_.stuck)
      return DetectedFailure{
          *culprit, sentence("it is alive, but {}nothing has moved for {}; its last step is {}, its last operation {}",
                             peer(*culprit).at.waits ? "waits too, and " : "", seconds(stood), peer(*culprit).at.step,
                             peer(*culprit).at.sequence)};
    if (stood >= timeouts_.warn_stuck && !std::exchange(warned_, true))
      warn(line(mine, culprit.value_or(for_), stood, now));
    return std::nullopt;
  }

  /// True if the rank has made no progress for about as long as this rank.
  bool stands_still(Rank rank, Time now) {
    auto const stood  = now - moved_at_;
    auto const enough = std::max<std::chrono::nanoseconds>(stood - 2 * timeouts_.heartbeat, stood / 2);
    return rank != me_ && peer(rank).watched && now - peer(rank).moved >= enough;
  }

  /// Returns the peer to report, among those without progress; empty if there is none.
  std::optional<Rank> furthest_behind(Time now) {
    auto const key = [&](Rank rank) {
      auto const& at = peer(rank).at;
      return std::tuple{at.waits, at.step, at.sequence, rank};
    };
    auto found = std::optional<Rank>{};
    for (Rank rank = 0; rank < size(); ++rank)
      if (stands_still(rank, now) && (!found || key(rank) < key(*found))) found = rank;
    return found;
  }

  /// Returns the awaited rank, if it is stuck. A rank that waits, too, gets twice the time: it may soon report another.
  std::optional<Rank> awaited(Time now) {
    if (awaited_ < 0 || !stands_still(awaited_, now) || peer(awaited_).at.polls) return std::nullopt;
    if (peer(awaited_).at.waits && now - moved_at_ < 2 * timeouts_.stuck) return std::nullopt;
    return awaited_;
  }

  std::string line(RankProgress const& mine, Rank rank, std::chrono::nanoseconds waited, Time now) {
    if (rank < 0) return "step " + std::to_string(mine.step) + ": waiting " + seconds(waited);
    auto const& p = peer(rank);
    return "step " + std::to_string(mine.step) + ": waiting " + seconds(waited) + " for rank " + std::to_string(rank) +
           (p.host.empty() ? "" : " (host " + p.host + ")") + ": last heartbeat " + seconds(now - p.heard) +
           " ago, last step " + std::to_string(p.at.step);
  }

  static std::string seconds(std::chrono::nanoseconds duration) {
    return formatted("%.1f s", std::chrono::duration<double>(duration).count());
  }

  Timeouts timeouts_;
  FailureScope failures_;
  Rank me_;
  std::vector<Peer> peers_;                   // [rank]
  std::chrono::nanoseconds tick_ = shortest;  // until the next check
  Time checked_, moved_at_;                   // of the last check; of this rank's progress
  RankProgress mine_;
  Rank awaited_ = -1;
  bool warned_  = false;
};

}  // namespace chorale::tcp
