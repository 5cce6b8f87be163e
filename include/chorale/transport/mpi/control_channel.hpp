// SPDX-License-Identifier: Apache-2.0
//
// Control messages of ranks under MPI; empty where the compiler does not find MPI.
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/mpi/init.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/wire/control_messages.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<mpi.h>)

namespace chorale::mpi {

/// Control channel on a duplicated communicator. A failing rank broadcasts its reason. A rank that has waited too long
/// sends the operation it is in, so that ranks blocked in different operations detect the mismatch.
///
/// keeps   no send waits for its receiver. Each rank throws only the first loss that it sees or receives
class ControlChannel {
 public:
  /// stop    called once, at the first loss
  ControlChannel(MPI_Comm communicator, std::function<void()> stop)
      : stop_{std::move(stop)}, control_{duplicate(communicator)} {
    MPI_Comm_rank(control_, &rank);
    MPI_Comm_size(control_, &size);
    expect_mpi(MPI_Allreduce(&connections_, &number_, 1, MPI_INT, MPI_MAX, control_), "MPI_Allreduce");
    connections_ = number_ + 1;
    number_ %= 8'192;  // MPI has 32768 tags at least
    positions_.resize(static_cast<std::size_t>(size));
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    one_thread_ = level < MPI_THREAD_SERIALIZED;
  }
  ~ControlChannel() {
    int over = 0;
    MPI_Finalized(&over);
    if (!over && !lost_) MPI_Comm_free(&control_);  // a late word would go to the next communicator
  }
  ControlChannel(ControlChannel const&)            = delete;
  ControlChannel& operator=(ControlChannel const&) = delete;

  int rank = 0, size = 0;
  std::uint64_t step = 0;

  detail::OperationLog const& announced() const { return announced_; }

  void announce(Operation const& operation) {
    throw_if_lost();
    announced_.add(operation);
    for (Rank peer = 0; heard_positions_ && peer < size; ++peer) compare_position(peer);
    if (announced_.last() % 64 == 0) listen();  // so that messages do not pile up
  }

  wire::Header header_of(detail::LoggedOperation const& announced) const {
    auto const& o = announced.operation;
    return {.from        = rank,
            .sequence    = announced.sequence,
            .collective  = o.collective,
            .op          = o.op,
            .element     = o.element,
            .tag         = o.tag,
            .count       = o.count,
            .fingerprint = announced.fingerprint,
            .root        = o.root < wire::last_root ? o.root : wire::last_root};
  }

  bool is_lost() const { return lost_.has_value(); }
  void throw_if_lost() const {
    if (is_over_)  // before any call of MPI
      throw BadArgument{"rank " + std::to_string(rank) + " uses MpiTransport after MPI_Finalize has ended MPI.",
                        "let the Trainer end before MPI_Finalize."};
    if (one_thread_ && !may_call_mpi()) throw_other_thread();
    if (lost_) detail::throw_peer_loss(rank, *lost_);
  }

  /// Reports a loss to all other ranks, unless there was one before, and throws the first loss.
  [[noreturn]] void lose(Rank culprit, detail::ConnectionFault const& fault, std::string operation) {
    if (!lost_) tell({fault.fault, culprit, {}, std::move(operation), announced_.last(), step, fault.reason});
    detail::throw_peer_loss(rank, *lost_);
  }

  /// Reports to all other ranks that this one fails, and throws nothing. After another loss it sends nothing: the first
  /// cause counts.
  void fail(std::string why, Fault fault) {
    if (why.ends_with('.')) why.pop_back();
    if (!lost_) tell({.fault = fault, .rank = rank, .reason = std::move(why)});
  }

  /// Sends `peer` the operation that this rank is in.
  void send_position(Rank peer) {
    if (announced_.last() == 0) return;
    wire::write(header_of(announced_.at(announced_.last())), said_[said_next_++ % said_.size()]);
    say(peer, position, said_[(said_next_ - 1) % said_.size()]);
  }

  /// Handles the control messages that have arrived: losses, and positions of other ranks.
  void listen() {
    for (;;) {
      int flag = 0, bytes = 0;
      auto status = MPI_Status{};
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control_, &flag, &status);
      if (!flag) return;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      auto word = std::vector<std::byte>(static_cast<std::size_t>(bytes));
      MPI_Recv(word.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, control_, MPI_STATUS_IGNORE);
      if (status.MPI_TAG / 2 != number_) continue;  // of an earlier channel: MPI has used its number
      if (status.MPI_TAG % 2 == cause) hear_cause(word);
      else hear_position(status.MPI_SOURCE, word);
    }
  }

 private:
  enum Word { cause, position };  // the lowest bit of tags

  /// Records a loss, cut to fit a message, and sends it to all other ranks.
  void tell(Loss const& loss) {
    told_.resize(wire::AbortPayload::max_bytes);
    told_.resize(wire::AbortPayload{loss}.write(Bytes{told_}.first<wire::AbortPayload::max_bytes>()));
    lost_ = wire::AbortPayload::parse(told_)->loss;  // as the other ranks read it
    for (Rank peer = 0; peer < size; ++peer)
      if (peer != rank) say(peer, cause, told_);
    stop_();
  }

  /// bytes   must live as long as the communicator
  void say(Rank peer, Word word, ConstBytes bytes) const {
    auto request = MPI_Request{};
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, 2 * number_ + word, control_, &request);
    MPI_Request_free(&request);
  }

  void hear_cause(ConstBytes word) {
    auto heard = wire::AbortPayload::parse(word);
    if (!heard || lost_) return;
    lost_ = std::move(heard->loss);
    if (lost_->rank == rank && lost_->fault == Fault::peer_stalled) {
      lost_->fault  = Fault::evicted;
      lost_->reason = "the others went on without it: " + lost_->reason;
    }
    stop_();
    detail::throw_peer_loss(rank, *lost_);
  }

  void hear_position(Rank peer, ConstBytes word) {
    auto const parsed = wire::parse(word, 0);
    if (parsed.result != wire::Parse::ok) return;
    positions_[static_cast<std::size_t>(peer)] = parsed.header;
    heard_positions_                           = true;
    compare_position(peer);
  }

  /// Throws a mismatch if the last position of `peer` has the number of another operation here.
  void compare_position(Rank peer) {
    auto const& theirs = positions_[static_cast<std::size_t>(peer)];
    auto const& ours   = announced_.at(theirs.sequence);
    if (theirs.sequence == 0 || ours.sequence != theirs.sequence || ours.fingerprint == theirs.fingerprint) return;
    try {
      detail::throw_mismatch({rank, peer}, theirs, ours);
    } catch (detail::ConnectionFault const& fault) { lose(peer, fault, ours.operation.text()); }
  }

  std::function<void()> stop_;
  MPI_Comm control_;
  inline static int connections_ = 0;  // of this process
  int number_                    = 0;  // of this channel, the same on all ranks
  detail::OperationLog announced_;
  std::vector<wire::Header> positions_;  // [rank] last position; sequence 0: none
  bool heard_positions_ = false;
  std::array<wire::HeaderBytes, 64> said_{};  // positions being sent
  std::size_t said_next_ = 0;
  std::vector<std::byte> told_;  // the loss, as sent to the other ranks
  std::optional<Loss> lost_;
  bool one_thread_ = false;  // MPI may be called in the thread of main() alone
  bool is_over_    = false;
  AtFinalize at_finalize_{[this] {  // last: it ends first
    fail("it called MPI_Finalize while its Trainer, or another endpoint of MpiTransport, was alive", Fault::peer_lost);
    is_over_ = true;
  }};
};

}  // namespace chorale::mpi

#endif
