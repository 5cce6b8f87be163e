// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/strategy/parameter_server/connections.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// What all workers that serve reported about an epoch.
struct Total {
  std::array<double, parameter_sums> sums{};                               // added up in the order of workers
  std::vector<Rank> reported;
  std::vector<std::array<double, parameter_sums>> each;                    // [worker]; zeros of one that has not
};

/// Points of a client at which a test may do something, e.g. end the process.
struct NoHooks {
  void in_push() {}                                                        // the first messages are on their way
};

/// How a worker asks all servers at once, and the calls that are no training: see Client.
template <Endpoint E, class Hooks>
class Calls {
 public:
  /// at    of W workers, then servers; this rank is one of the workers, and at() outlives the client
  Calls(E& at, ShardLayout const& shards, ParameterOptions options = {}, Hooks hooks = {})
      : at_{&at}, shards_{std::make_unique<ShardLayout>(shards)}, options_{options}, hooks_{std::move(hooks)},
        links_{at, *shards_, options_} {
    CHORALE_EXPECTS(at.size() == shards.ranks() && shards.is_worker(at.rank()),
                    "rank " + std::to_string(at.rank()) + " of " + std::to_string(at.size()) + " is none of " +
                        std::to_string(shards.workers()) + " workers of " + std::to_string(shards.servers()) +
                        " servers: workers come first, then servers");
  }
  ~Calls() {
    try {
      leave();
    } catch (std::exception const&) {                                      // the servers see that this worker is gone
    }
  }
  Calls(Calls const&)            = delete;
  Calls& operator=(Calls const&) = delete;

  /// Puts these values in place of what the servers have, as one version on each; slots of the optimizer stay.
  void assign(Variables const& variables) {
    shards_->expect_in(variables.values.size());
    exchange([&](Link& link) {
      link.next(Call::assign);
      link.send_values(variables.values);
    });
    verdict([] { return std::string{}; });
  }

  /// One slot of the optimizer, of all servers.
  ///
  /// into      a flat buffer as the variables are
  void pull_slot(std::size_t slot, Span<float> into) {
    shards_->expect_in(into.size());
    exchange([&](Link& link) {
      link.next(Call::pull_slot).count = slot;
      link.receive_values(into);
    });
    verdict([] { return std::string{}; });
  }

  /// Puts back what pull_slot() gave.
  void assign_slot(std::size_t slot, Span<float const> values) {
    shards_->expect_in(values.size());
    exchange([&](Link& link) {
      link.next(Call::assign_slot).count = slot;
      link.send_values(values);
    });
    verdict([] { return std::string{}; });
  }

  /// How many updates server 0 had made when it last answered, and the same for all servers.
  std::uint64_t optimizer_step() { return static_cast<std::uint64_t>(links_[0].reply.sums[0]); }
  void assign_step(std::uint64_t step) {
    exchange([&](Link& link) { link.next(Call::assign_step).version = step; });
  }

  /// What this worker adds to an epoch's sums; once for each epoch.
  void report(int epoch, Span<double const> sums) {
    CHORALE_EXPECTS(sums.size() <= parameter_sums, "a report has at most " + std::to_string(parameter_sums) +
                                                       " sums, got " + std::to_string(sums.size()));
    exchange([&](Link& link) {
      auto& request = link.next(Call::report);
      request.epoch = epoch;
      std::ranges::copy(sums, request.sums.begin());
    }, 1);
  }

  /// Waits until every other worker has reported this epoch, has left, or is lost.
  Total total(int epoch) {
    auto const workers = static_cast<std::size_t>(shards_->workers());
    auto total         = Total{.each = std::vector<std::array<double, parameter_sums>>(workers)};
    auto const each    = std::as_writable_bytes(Span<std::array<double, parameter_sums>>{total.each});
    auto told          = std::vector<std::byte>(workers + each.size());    // a byte for each that reported, then what
    exchange([&](Link& link) {
      link.next(Call::total).epoch = epoch;
      link.receive(told);
    }, 1);
    total.sums = links_[0].reply.sums;
    for (std::size_t w = 0; w < workers; ++w)
      if (told[w] != std::byte{0}) total.reported.push_back(static_cast<Rank>(w));
    std::ranges::copy(Span<std::byte const>{told}.subspan(workers), each.begin());
    return total;
  }

  /// This worker brings nothing more. The last call; the destructor does it otherwise.
  void leave() {
    if (std::exchange(left_, true)) return;
    exchange([&](Link& link) { link.next(Call::leave); });
  }

  std::uint64_t step() const { return step_; }                             // pushes so far

 protected:
  using Link = ServerConnection<E>;

  static constexpr auto all = ~std::size_t{0};

  bool one_server() const { return links_.size() == 1; }

  /// Of the last push; `what` says what was not finite.
  template <class What>
  int verdict(What&& what) {
    auto dropped = 0;
    for (auto const& link : links_) {
      if (link.reply.verdict == Verdict::not_finite)
        throw NumericFault{(link.reply.said().empty() ? what() + " of step " + std::to_string(step_ - 1) +
                                                            " is not finite on worker " +
                                                            std::to_string(shards_->worker_at(at_->rank()))
                                                      : link.reply.said()) +
                               "; no variable was changed.",
                           "a lower learning rate, clipping, a look at the inputs for NaN, or NonFinite::skip."};
      dropped += link.reply.verdict == Verdict::done ? 0 : 1;
    }
    return dropped;
  }

  /// One request to each server, or to the first ones only, and its answer.
  template <class Ask>
  void exchange(Ask&& ask, std::size_t servers = all) {
    links_.exchange(ask, std::min(servers, links_.size()), [this] {
      if (pushes(links_[0].request.call)) hooks_.in_push();
    });
  }

  E* at_;
  std::unique_ptr<ShardLayout> shards_;                                    // links point to it
  ParameterOptions options_;
  Hooks hooks_;
  ServerConnections<E> links_;
  std::uint64_t step_ = 0;

 private:
  bool left_ = false;
};

}  // namespace chorale::parameter_server
