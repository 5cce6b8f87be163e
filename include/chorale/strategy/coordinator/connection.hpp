// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/coordinator/messages.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

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
  std::vector<std::size_t> data{};                                         // datasets, in the order of the parameters
  std::vector<std::byte> arguments{}, result{};
  ClosureStage stage = ClosureStage::waiting;
  std::exception_ptr error{};                                              // failed, cancelled: what fetch() throws

  bool settled() const { return stage != ClosureStage::waiting; }
};

/// A coordinator's end of the connection to one worker: one closure at a time.
template <Endpoint E>
class WorkerConnection {
 public:
  /// rank    of the worker; worker 0 is rank 1
  WorkerConnection(E& at, Rank rank, Tag tag) : at_{&at}, rank_{rank}, tag_{tag} {}

  int worker() const { return rank_ - 1; }
  bool busy() const { return stage_ != Stage::idle && stage_ != Stage::lost; }
  bool lost() const { return stage_ == Stage::lost; }
  std::string const& why() const { return why_; }                          // the worker is lost
  std::shared_ptr<ClosureTask> take() { return std::exchange(task_, nullptr); }   // the closure, once not busy()
  ClosureReply const& reply() const { return reply_; }

  void begin(std::shared_ptr<ClosureTask> task) {
    task_          = std::move(task);
    request_       = task_->request;
    request_.bytes = task_->arguments.size();
    out_.add(parameter_server::bytes_of(request_));
    out_.add_cut(task_->arguments);
    in_.add(parameter_server::bytes_of(reply_));
    stage_ = Stage::runs;
  }

  /// Asks the worker to end; it sends no reply.
  void leave() {
    if (lost()) return;
    request_ = {};
    out_.add(parameter_server::bytes_of(request_));
    stage_ = Stage::leaves;
  }

  /// Advances the request; true if there was progress. Afterwards the worker may be lost().
  bool advance() {
    try {
      return step();
    } catch (PeerLost const& lost) {
      if (lost.rank() != rank_) throw;                                     // this rank cannot go on
      lose(lost.what());
      return true;
    }
  }

 private:
  enum class Stage { idle, runs, result, leaves, lost };

  bool step() {
    if (stage_ == Stage::idle) {
      if (!parameter_server::knows_lost(*at_, rank_)) return false;
      at_->recv(rank_, tag_, {}).wait();                                   // throws the reason
    }
    auto moved = out_.advance(*at_, rank_, tag_);
    if (stage_ == Stage::leaves) {
      if (out_.empty()) stage_ = Stage::idle;
      return moved;
    }
    moved |= in_.advance(*at_, rank_, tag_);
    if (!in_.empty()) return moved;
    if (stage_ == Stage::runs) {
      check();
      task_->result.resize(reply_.bytes);
      in_.add_cut(task_->result);
      stage_ = Stage::result;
      moved  = true;
    }
    in_.advance(*at_, rank_, tag_);
    if (in_.empty() && out_.empty()) stage_ = Stage::idle;
    return moved || stage_ == Stage::idle;
  }

  void check() const {
    if (reply_.magic == closure_magic && reply_.number == request_.number && reply_.bytes <= closure_limit) return;
    throw Disagreement{Fault::collective_mismatch, "worker " + std::to_string(worker()) + " (rank " +
                                                       std::to_string(rank_) + ") sent what is no reply to closure " +
                                                       std::to_string(request_.number) + ".",
                       "the same program in all processes."};
  }

  void lose(std::string why) {
    in_.clear();
    out_.clear();
    why_   = std::move(why);
    stage_ = Stage::lost;
  }

  E* at_;
  Rank rank_;
  Tag tag_;
  Stage stage_ = Stage::idle;
  std::string why_;
  std::shared_ptr<ClosureTask> task_;
  ClosureRequest request_;
  ClosureReply reply_;
  parameter_server::Transfer<E> in_{parameter_server::Transfer<E>::Direction::in},
      out_{parameter_server::Transfer<E>::Direction::out};
};

}  // namespace chorale::detail
