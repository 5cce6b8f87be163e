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

/// Reports of the workers about an epoch, and their sums.
struct Total {
  std::array<double, parameter_sums> sums{};                               // added up in the order of workers
  std::vector<Rank> reported;
  std::vector<std::array<double, parameter_sums>> each;                    // [worker]; zeros if it has not reported
};

/// Points of a client at which a test may act, e.g. end the process; here they do nothing.
struct NoHooks {
  void in_push() {}                                                        // the first messages are in flight
};

/// Base of Client: requests to all servers at once, and the calls that are not part of training.
template <Endpoint E, class Hooks>
class Calls {
 public:
  /// at    endpoint of W workers, then servers; this rank is one of the workers. It outlives the client
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
    } catch (std::exception const&) {                                      // the servers detect that it is gone
    }
  }
  Calls(Calls const&)            = delete;
  Calls& operator=(Calls const&) = delete;

  /// Replaces the values on all servers, as one version on each; slots of the optimizer are kept.
  void assign(Variables const& variables) {
    shards_->expect_in(variables.values.size());
    exchange([&](Link& link) {
      link.next(Call::assign);
      link.send_values(variables.values);
    });
    verdict([] { return std::string{}; });
  }

  /// Receives one slot of the optimizer from all servers.
  ///
  /// into      a flat buffer with the layout of the variables
  void pull_slot(std::size_t slot, Span<float> into) {
    shards_->expect_in(into.size());
    exchange([&](Link& link) {
      link.next(Call::pull_slot).count = slot;
      link.receive_values(into);
    });
    verdict([] { return std::string{}; });
  }

  /// Replaces one slot of the optimizer on all servers, by what pull_slot() gave.
  void assign_slot(std::size_t slot, Span<float const> values) {
    shards_->expect_in(values.size());
    exchange([&](Link& link) {
      link.next(Call::assign_slot).count = slot;
      link.send_values(values);
    });
    verdict([] { return std::string{}; });
  }

  /// Number of updates that server 0 had made when it last replied; assign_step() sets it on all servers.
  std::uint64_t optimizer_step() { return static_cast<std::uint64_t>(links_[0].reply.sums[0]); }
  void assign_step(std::uint64_t step) {
    exchange([&](Link& link) { link.next(Call::assign_step).version = step; });
  }

  /// Sends this worker's part of an epoch's sums; once for each epoch.
  void report(int epoch, Span<double const> sums) {
    CHORALE_EXPECTS(sums.size() <= parameter_sums, "a report has at most " + std::to_string(parameter_sums) +
                                                       " sums, got " + std::to_string(sums.size()));
    exchange([&](Link& link) {
      auto& request = link.next(Call::report);
      request.epoch = epoch;
      std::ranges::copy(sums, request.sums.begin());
    }, 1);
  }

  /// Returns the reports of an epoch, when every other worker has reported it, has left, or is lost.
  Total total(int epoch) {
    auto const workers = static_cast<std::size_t>(shards_->workers());
    auto total         = Total{.each = std::vector<std::array<double, parameter_sums>>(workers)};
    auto const each    = std::as_writable_bytes(Span<std::array<double, parameter_sums>>{total.each});
    auto told          = std::vector<std::byte>(workers + each.size());    // a flag for each worker, then each report
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

  /// Leaves the servers: this worker sends nothing more. The last call; otherwise the destructor calls it.
  void leave() {
    if (std::exchange(left_, true)) return;
    exchange([&](Link& link) { link.next(Call::leave); });
  }

  std::uint64_t step() const { return step_; }                             // pushes so far

 protected:
  using Link = ServerConnection<E>;

  static constexpr auto all = ~std::size_t{0};

  bool one_server() const { return links_.size() == 1; }

  /// Returns how many servers dropped the last push. Throws NumericFault if it was not finite; `what` names the fault.
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

  /// Sends one request to each server, or to the first ones only, and waits for the replies.
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
