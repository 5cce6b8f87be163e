// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/coordinator/messages.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

enum class ClosureStage { waiting, done, failed, cancelled };

/// A scheduled closure.
struct ClosureTask {
  std::string name;
  ClosureRequest request{};
  std::vector<std::size_t> data{};  // datasets, in the order of the parameters
  std::vector<std::byte> arguments{}, result{};
  ClosureStage stage = ClosureStage::waiting;
  std::exception_ptr error{};  // failed, cancelled: what fetch() throws

  bool settled() const { return stage != ClosureStage::waiting; }
};

/// A coordinator's end of the connection to one worker: one closure at a time.
template <Endpoint E> class WorkerConnection {
 public:
  /// rank    of the worker; worker 0 is rank 1
  WorkerConnection(E& at, Rank rank, Tag tag) : exchange_{at, rank, tag} {}

  int worker() const { return exchange_.peer() - 1; }
  bool busy() const { return exchange_.busy(); }
  bool lost() const { return lost_; }
  std::string const& why() const { return why_; }                                // the worker is lost
  std::shared_ptr<ClosureTask> take() { return std::exchange(task_, nullptr); }  // the closure, once not busy()
  ClosureReply const& reply() const { return reply_; }

  void begin(std::shared_ptr<ClosureTask> task) {
    task_          = std::move(task);
    request_       = task_->request;
    request_.bytes = task_->arguments.size();
    exchange_.request().add(parameter_server::bytes_of(request_));
    exchange_.request().add_cut(task_->arguments);
    exchange_.begin(parameter_server::bytes_of(reply_));
  }

  /// Asks the worker to end; it sends no reply.
  void leave() {
    if (lost()) return;
    request_ = {};
    exchange_.request().add(parameter_server::bytes_of(request_));
    exchange_.begin_without_reply();
  }

  /// Advances the request; true if there was progress. Afterwards the worker may be lost().
  bool advance() {
    try {
      return step();
    } catch (PeerLost const& lost) {
      if (lost.rank() != exchange_.peer()) throw;  // this rank cannot go on
      return lose(lost);
    } catch (Error const& error) {  // it sent another message
      auto& at = exchange_.endpoint();
      if (parameter_server::knows_lost(at, at.rank())) throw;
      try {  // it has replied, and so received all
        if (!parameter_server::knows_lost(at, exchange_.peer()))
          exchange_.request().advance(at, exchange_.peer(), exchange_.tag());
      } catch (PeerLost const& lost) {
        if (lost.rank() != exchange_.peer()) throw;
      }
      if (!parameter_server::knows_lost(at, exchange_.peer()) && !exchange_.request().empty()) throw;
      return lose(error);
    }
  }

 private:
  bool lose(Error const& error) {
    exchange_.abandon();
    lost_ = true;
    why_  = error.what();
    return true;
  }

  bool step() {
    auto& at = exchange_.endpoint();
    if (!busy() && parameter_server::knows_lost(at, exchange_.peer()))
      at.recv(exchange_.peer(), exchange_.tag(), {}).wait();  // throws the reason
    return exchange_.advance([this] {
      check();
      task_->result.clear();
      exchange_.reply().add_growing(reply_.bytes, 0, parameter_server::growing(task_->result));
    });
  }

  void check() const {
    auto const same_data =
        std::ranges::equal(reply_.data, request_.data, {}, &DataPosition::dataset, &DataPosition::dataset);
    if (reply_.magic == closure_magic && reply_.number == request_.number && reply_.bytes <= closure_limit && same_data)
      return;
    throw Disagreement{Fault::collective_mismatch,
                       sentence("worker {} (rank {}) sent what is no reply to closure {}.", worker(), exchange_.peer(),
                                request_.number),
                       "the same program in all processes."};
  }

  parameter_server::RequestReply<E> exchange_;
  bool lost_ = false;
  std::string why_;
  std::shared_ptr<ClosureTask> task_;
  ClosureRequest request_;
  ClosureReply reply_;
};

}  // namespace chorale::detail
