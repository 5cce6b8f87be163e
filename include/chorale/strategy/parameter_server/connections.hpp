// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/connection.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace chorale::parameter_server {

/// A worker's connections to all servers.
///
/// keeps   after a failure no other rank accesses memory of operations in flight, and no further request is sent
template <Endpoint E>
class ServerConnections {
 public:
  using Link = ServerConnection<E>;

  ServerConnections(E& at, ShardLayout const& shards, ParameterOptions const& options)
      : at_{&at}, shards_{&shards}, tag_{options.tag} {
    links_.reserve(static_cast<std::size_t>(shards.servers()));
    for (int s = 0; s < shards.servers(); ++s) links_.emplace_back(at, shards, options, s);
  }

  std::size_t size() const { return links_.size(); }
  Link& operator[](std::size_t server) { return links_[server]; }
  auto begin() { return links_.begin(); }
  auto end() { return links_.end(); }

  /// Sends one request to each of the first servers, and waits for the replies: ask(link) makes the request.
  ///
  /// begun   called when the first messages to all are in flight
  /// throws  PeerLost that names the shard; Disagreement; BadArgument after an earlier call threw one of these
  template <class Ask, class Begun>
  void exchange(Ask&& ask, std::size_t servers, Begun&& begun) {
    CHORALE_EXPECTS(!broken_, "this client lost a server, or was refused, and can be used no more");
    auto const all = Span<Link>{links_}.first(servers);
    broken_        = true;
    try {
      for (auto& link : all) ask(link);
      for (auto& link : all)
        for (auto const& other : links_) link.request.turn = std::max(link.request.turn, other.clock);
      for (auto& link : all) link.begin();
      begun();
      finish(all);
    } catch (PeerLost const& lost) {
      fail(*at_, "it lost a parameter server");                            // before memory is freed that others may use
      throw_lost(lost);
    } catch (std::exception const& error) {
      fail(*at_, error.what());
      throw;
    }
    broken_ = false;
  }

 private:
  void finish(Span<Link> all) {
    auto idle = Idle{};
    while (std::ranges::any_of(all, &Link::busy)) {
      auto moved = false;
      for (auto& link : all) moved |= link.advance();
      if (moved) {
        idle.busy();
        continue;
      }
      for (auto const& link : links_) {                                    // servers without a request may be lost, too
        if (link.busy() || link.request.call == Call::leave) continue;
        if (auto const rank = shards_->rank_of(link.server()); knows_lost(*at_, rank))
          at_->recv(rank, tag_, {}).wait();                                // throws the reason
      }
      idle.rest_at(*at_);
    }
  }

  [[noreturn]] void throw_lost(PeerLost const& lost) const {
    auto const server = lost.rank() - shards_->rank_of(0);
    if (server < 0 || server >= shards_->servers()) throw lost;
    auto loss   = lost.loss();
    loss.reason = "server " + std::to_string(server) + " of " + std::to_string(shards_->servers()) + " (rank " +
                  std::to_string(lost.rank()) + ") is gone; it held " +
                  std::to_string(shards_->elements(server) * sizeof(float)) + " of " +
                  std::to_string(shards_->elements() * sizeof(float)) + " bytes of the variables" +
                  (loss.reason.empty() ? "" : ": " + loss.reason);
    throw PeerLost{at_->rank(), loss, "a restart of all ranks from the last checkpoint."};
  }

  E* at_;
  ShardLayout const* shards_;
  Tag tag_;
  std::vector<Link> links_;                                                // [server]
  bool broken_ = false;
};

}  // namespace chorale::parameter_server
