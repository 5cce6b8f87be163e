// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/connector.hpp>
#include <chorale/transport/wire/identity.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Finds out whether a refused connection comes from the rank that it claims to be, or from a stranger.
///
///   "I am rank 1" ──▶ rank 0 refuses, but does not send the refusal yet
///                     rank 0 ──▶ the address of rank 1: do the two ranks fit?     no: the job ends at once, on both
///                                                                                 yes, or no answer: a stranger
///   "I am rank 1" ◀── refused
///
/// A claim proves nothing: if it could end the job, anyone could end the job. Only the rank itself listens at its
/// address. The refusal waits because the process of a refused rank ends, and could not be asked any more.
///
/// keeps   at most one question to a rank at a time, and one connection for each connection of a stranger
class IdentityProbe {
 public:
  struct Host {
    std::function<Connector::Host(Rank)> call_to;                          // to its control channel
    std::function<bool(Rank)> is_expected;                                 // it should connect, and has not
    std::function<void(Rank, wire::Refusal const&)> impossible;            // that rank can never join this job
  };

  IdentityProbe(asio::io_context& io, int ranks, Host host)
      : io_{io}, host_{std::move(host)}, questions_(static_cast<std::size_t>(ranks)) {}

  /// then    called when the answer has arrived, or none can arrive
  void ask(Rank claimed, std::function<void()> then) {
    if (claimed < 0 || static_cast<std::size_t>(claimed) >= questions_.size() || !host_.is_expected(claimed))
      return then();
    auto& [dial, waiting] = questions_[static_cast<std::size_t>(claimed)];
    waiting.push_back(std::move(then));
    if (waiting.size() > 1) return;
    if (!dial) dial = std::make_unique<Connector>(io_, question_to(claimed));
    dial->start();
  }

 private:
  struct Question {
    std::unique_ptr<Connector> dial;
    std::vector<std::function<void()>> waiting;
  };

  Connector::Host question_to(Rank rank) {
    auto to                 = host_.call_to(rank);
    to.identity.incarnation = wire::only_asks;
    to.admit                = [this, rank](auto const&, AuthenticatedSocket) { answer(rank); };
    to.failed               = [this, rank] { answer(rank); };
    to.starved              = [this, rank](int) { answer(rank); };
    to.refused              = [this, rank](wire::Refusal const& no) {
      answer(rank);
      if (host_.is_expected(rank)) host_.impossible(rank, no);
    };
    return to;
  }

  void answer(Rank rank) {
    for (auto const& then : std::exchange(questions_[static_cast<std::size_t>(rank)].waiting, {})) then();
  }

  asio::io_context& io_;
  Host host_;
  std::vector<Question> questions_;                                        // [rank]
};

}  // namespace chorale::tcp
