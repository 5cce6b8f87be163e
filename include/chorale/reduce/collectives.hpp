// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/collectives/mean.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

namespace chorale {

/// Exchange in pairs: in step s between ranks whose numbers add up to s, modulo P.
///
///   P = 4     step 0   1 <-> 3        0 and 2 are their own peers
///             step 1   0 <-> 1   2 <-> 3
///             step 2   0 <-> 2        1 and 3 are their own peers
///             step 3   0 <-> 3   1 <-> 2
///
/// cost    P steps; (P-1)/P · S bytes sent per rank, the least possible
struct PairwiseExchange {
  static constexpr Collective collective = Collective::all_to_all;
  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks; }
  static constexpr Step step(Rank rank, int ranks, int s) {
    auto const peer = (s - rank + ranks) % ranks;
    if (peer == rank) return {};
    return {.to = peer, .send = Chunks::one(peer), .from = peer, .receive = Chunks::one(peer)};
  }
};

/// Sends the i-th of P equal parts of `in` to rank i, and receives the i-th part of `out` from rank i.
///
/// in, out   of the same size, a multiple of P; they do not overlap
/// throws    BadArgument when the sizes differ, or are not a multiple of P; PeerLost
template <Endpoint E, class T> requires std::is_trivially_copyable_v<T>
void all_to_all(E& at, Span<std::type_identity_t<T> const> in, Span<T> out, Tag tag = {},
                CallSite where = CallSite::here()) {
  auto const P = static_cast<std::size_t>(at.size());
  CHORALE_EXPECTS(in.size() == out.size() && in.size() % P == 0, "all_to_all of " + std::to_string(in.size()) +
                                                                     " elements into " + std::to_string(out.size()) +
                                                                     " over " + std::to_string(P) + " ranks");
  auto const mine = share(in.size(), at.rank(), at.size());
  std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(mine.begin), mine.size(),
              out.begin() + static_cast<std::ptrdiff_t>(mine.begin));
  auto operation = ScheduleExecution<PairwiseExchange, E, T>{};
  operation.restart(at, {.collective = Collective::all_to_all, .x = out, .in = in, .tag = tag, .where = where});
  operation.finish();
}

/// Sends x to rank `peer`, which receives as many elements.
///
/// keeps   x may be changed when the result is done
template <Endpoint E, class T> requires std::is_trivially_copyable_v<T>
[[nodiscard]] typename E::pending send(E& at, Rank peer, Span<T> x, Tag tag = {}) {
  return at.send(peer, tag, std::as_bytes(x));
}

/// Receives x from rank `peer`, which sends as many elements.
///
/// keeps   x is complete when the result is done
template <Endpoint E, class T> requires std::is_trivially_copyable_v<T>
[[nodiscard]] typename E::pending receive(E& at, Rank peer, Span<T> x, Tag tag = {}) {
  return at.recv(peer, tag, std::as_writable_bytes(x));
}

}  // namespace chorale
