// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/pending_table.hpp>
#include <chorale/transport/transport.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace chorale::detail {

/// State shared by the views of one TwoLayerEndpoint: both layers, and the operations under way in them.
///
/// A transport may move bytes only while its rank calls it. So a wait in one layer also polls the operations of the
/// other: else rank A could wait near for B, B far for C, and C far for bytes that A has not moved yet.
template <Endpoint Near, Endpoint Far>
class LayeredState {
 public:
  using near_endpoint = Near;
  using far_endpoint  = Far;

  LayeredState(Near n, Far f, std::chrono::nanoseconds limit)
      : near{std::move(n)}, far{std::move(f)}, timeout_{limit} {}

  int  node() const { return far.rank() / near.size(); }
  int  nodes() const { return far.size() / near.size(); }
  bool is_near(Rank rank) const { return rank / near.size() == node(); }

  /// peer    in the near group
  template <class Begin>
  TablePending<LayeredState> start_near(Rank peer, Tag tag, Begin begin) {
    auto const in_group = node() * near.size() + peer;
    return start(in_group, tag, Pending{std::in_place_index<0>, in_near([&] { return begin(near); })});
  }
  template <class Begin>
  TablePending<LayeredState> start_far(Rank peer, Tag tag, Begin begin) {
    return start(peer, tag, Pending{std::in_place_index<1>, in_far([&] { return begin(far); })});
  }

  bool done(Ticket ticket) {
    if (under_way_.is_over(ticket)) return true;
    if (!poll(under_way_[ticket])) return false;
    under_way_.finish(ticket);
    return true;
  }

  void wait(Ticket ticket) {
    auto patience = Backoff{200};                                          // perhaps the ranks share cores
    auto deadline = Deadline::never();
    while (!done(ticket)) {
      if (!move_on(1 - under_way_[ticket].pending.index())) return wait_alone(ticket);
      patience.pause();
      if (!patience.slow()) continue;
      if (deadline.at == Deadline::never().at) deadline = Deadline::after(timeout_);
      if (deadline.passed()) give_up(under_way_[ticket]);
    }
  }

  /// Reports a failure to both layers. The far layer first: it has all ranks, which report the first cause it gets.
  void fail(std::string const& why) {
    chorale::fail(far, why);
    chorale::fail(near, why);
  }

  template <class F>
  auto in_near(F f) {
    try {
      return f();
    } catch (PeerLost const& lost) {
      lost_in_node(lost);
    } catch (BadArgument const&) {
      throw;
    } catch (Error const& error) {
      chorale::fail(far, plain(error.what()));
      throw;
    }
  }

  template <class F>
  auto in_far(F f) {
    try {
      return f();
    } catch (BadArgument const&) {
      throw;
    } catch (Error const& error) {
      chorale::fail(near, plain(error.what()));
      throw;
    }
  }

  Near near;
  Far far;

 private:
  using Pending = std::variant<typename Near::pending, typename Far::pending>;

  struct Item {
    Pending pending;
    Rank peer = 0;                                                    // in the whole group
    Tag tag{};
    LayeredState* state = nullptr;

    bool done() { return state->poll(*this); }
  };

  TablePending<LayeredState> start(Rank peer, Tag tag, Pending pending) {
    auto const ticket  = under_way_.take();
    under_way_[ticket] = {std::move(pending), peer, tag, this};
    return {*this, ticket};
  }

  bool poll(Item& item) {
    if (item.pending.index() == 0) return in_near([&] { return std::get<0>(item.pending).done(); });
    return in_far([&] { return std::get<1>(item.pending).done(); });
  }

  /// Polls the operations of one layer; true if some are still under way.
  bool move_on(std::size_t layer) {
    auto some = false;
    under_way_.each([&](Item& item) {
      if (item.pending.index() != layer) return false;
      auto const over = poll(item);
      some |= !over;
      return over;
    });
    return some;
  }

  void wait_alone(Ticket ticket) {
    auto& item = under_way_[ticket];
    if (item.pending.index() == 0) in_near([&] { std::get<0>(item.pending).wait(); });
    else in_far([&] { std::get<1>(item.pending).wait(); });
    under_way_.finish(ticket);
  }

  /// Throws the root cause that the far layer decides on, as all survivors do; without one, the loss this rank saw.
  [[noreturn]] void lost_in_node(PeerLost const& lost) {
    auto seen = lost.loss();
    seen.rank += node() * near.size();
    seen.reason     = "in node " + std::to_string(node()) + ", " + plain(lost.what());
    auto const mine = PeerLost{far.rank(), seen};
    if constexpr (requires { far.fail(seen.reason); }) {
      far.fail(plain(mine.what()));
      far.recv(far.rank(), Tag{}, {}).done();                         // throws the root cause
    }
    throw mine;
  }

  /// Returns an error's text as a part of another sentence.
  static std::string plain(std::string_view text) {
    constexpr auto prefix = std::string_view{"chorale: "};
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
    text = text.substr(0, text.find('\n'));                           // without what to try
    if (text.ends_with('.')) text.remove_suffix(1);
    return std::string{text};
  }

  [[noreturn]] void give_up(Item const& item) {
    auto const limit = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    auto const lost  = PeerLost{
        far.rank(), Loss{.fault = Fault::peer_stalled, .rank = item.peer,
                         .reason = "rank " + std::to_string(far.rank()) + " waited " + std::to_string(limit) +
                                   " ms for it, tag " + std::to_string(static_cast<std::uint32_t>(item.tag)) +
                                   ", while the other layer had messages under way"}};
    fail(plain(lost.what()));
    throw lost;
  }

  std::chrono::nanoseconds timeout_;
  PendingTable<Item> under_way_;
};

}  // namespace chorale::detail
