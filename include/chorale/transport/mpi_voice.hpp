// SPDX-License-Identifier: Apache-2.0
//
// What ranks under MPI say to each other besides their messages; empty where the compiler does not find MPI.
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/agreement.hpp>
#include <chorale/transport/announcements.hpp>
#include <chorale/transport/control_payload.hpp>
#include <chorale/transport/farewell.hpp>
#include <chorale/transport/frame.hpp>
#include <chorale/transport/mpi_start.hpp>
#include <chorale/transport/operation.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<mpi.h>)

namespace chorale::detail {

/// A communicator of its own, over which ranks say why they stop, those that have waited for a while in which operation
/// they are, and those that close() after which: so also ranks find that they differ which wait for different messages.
///
/// keeps   nobody waits for anybody to hear it. Each rank throws the first loss that it sees or hears of, and only that
class MpiVoice {
 public:
  /// stop    called once, when nothing goes on
  explicit MpiVoice(std::function<void()> stop) : stop_{std::move(stop)} {
    expect_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(control_, &rank);
    MPI_Comm_size(control_, &size);
    positions_.resize(static_cast<std::size_t>(size));
    told_positions_.resize(static_cast<std::size_t>(size));
    farewells_.resize(static_cast<std::size_t>(size));
  }
  ~MpiVoice() {
    int over = 0;
    MPI_Finalized(&over);
    if (!over && !lost_) MPI_Comm_free(&control_);                    // else words may come late: see say_goodbye()
  }
  MpiVoice(MpiVoice const&)            = delete;
  MpiVoice& operator=(MpiVoice const&) = delete;

  int rank = 0, size = 0;
  std::uint64_t step = 0;

  Announcements const& announced() const { return announced_; }

  void announce(Operation const& operation) {
    throw_if_lost();
    announced_.add(operation);
    for (Rank peer = 0; heard_positions_ && peer < size; ++peer) compare_position(peer);
    if (announced_.last() % 64 == 0) listen();                        // what others said does not pile up
  }

  wire::Header header_of(Announced const& announced) const {
    auto head = wire::Header{.from = rank};
    describe(head, announced);
    return head;
  }

  void throw_if_lost() const {
    if (lost_) throw_loss(rank, *lost_);
  }

  /// Nothing goes on, and all others are told why.
  [[noreturn]] void lose(Rank culprit, LinkFault const& fault, std::string operation) {
    if (!lost_) tell({fault.fault, culprit, {}, std::move(operation), announced_.last(), step, fault.reason});
    throw_loss(rank, *lost_);
  }

  /// The same, and no error yet. After another loss it says nothing: the first cause counts.
  void fail(std::string why) {
    if (why.ends_with('.')) why.pop_back();
    if (!lost_) tell({.fault = Fault::peer_lost, .rank = rank, .reason = std::move(why)});
  }

  /// Tells that rank, for which this one waits, in which operation it does; once.
  void say_position(Rank peer, Announced const& at) {
    if (at.sequence == 0 || std::exchange(told_positions_[static_cast<std::size_t>(peer)], at.sequence) == at.sequence)
      return;
    wire::write(header_of(at), said_[said_next_++ % said_.size()]);
    say(peer, position, said_[(said_next_ - 1) % said_.size()]);
  }

  /// This rank calls no more operations, and listens until all others have said so, too: a message that comes when its
  /// communicator has gone would be taken for one of the next.
  void say_goodbye() {
    static auto& kept = *new std::vector<std::vector<std::byte>>;     // MPI may still use it when this has gone
    if (lost_ || std::exchange(said_goodbye_, true)) return;
    kept.push_back(Farewell::after(announced_).write());
    for (Rank peer = 0; peer < size; ++peer)
      if (peer != rank) say(peer, goodbye, kept.back());
  }

  bool has_left(Rank peer) const { return farewells_[static_cast<std::size_t>(peer)].has_value(); }

  /// throws  Disagreement when a rank that has left, and is waited for, was in another operation
  void expect_left_in_same(Rank peer) {
    if (!has_left(peer)) return;
    if (auto const fault = farewells_[static_cast<std::size_t>(peer)]->first_difference({rank, peer}, announced_))
      lose(peer, *fault, last_text());
  }

  /// throws  Disagreement when a rank that has left has not called the operations that this one has, which leaves, too
  void expect_same_end(Rank peer) {
    if (auto const fault = farewells_[static_cast<std::size_t>(peer)]->difference({rank, peer}, announced_))
      lose(peer, *fault, last_text());
  }

  /// What other ranks have said: that they cannot go on, where they are, or that they end.
  void listen() {
    for (;;) {
      int flag = 0, bytes = 0;
      auto status = MPI_Status{};
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control_, &flag, &status);
      if (!flag) return;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      auto word = std::vector<std::byte>(static_cast<std::size_t>(bytes));
      MPI_Recv(word.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, control_, MPI_STATUS_IGNORE);
      if (status.MPI_TAG == cause) hear_cause(word);
      else if (status.MPI_TAG == position) hear_position(status.MPI_SOURCE, word);
      else
        farewells_[static_cast<std::size_t>(status.MPI_SOURCE)] = Farewell::parse(word);
    }
  }

 private:
  enum Word { cause, position, goodbye };                             // tags

  std::string last_text() const {
    auto const& last = announced_.at(announced_.last());
    return last.sequence == 0 ? std::string{} : last.operation.text();
  }

  /// In words that fit into a message.
  void tell(Loss const& loss) {
    told_.resize(wire::AbortPayload::max_bytes);
    told_.resize(wire::AbortPayload{loss}.write(Bytes{told_}.first<wire::AbortPayload::max_bytes>()));
    lost_ = wire::AbortPayload::parse(told_)->loss;                   // as they read it
    for (Rank peer = 0; peer < size; ++peer)
      if (peer != rank) say(peer, cause, told_);
    stop_();
  }

  /// bytes   live as long as the communicator
  void say(Rank peer, Word word, ConstBytes bytes) const {
    auto request = MPI_Request{};
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, word, control_, &request);
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
    throw_loss(rank, *lost_);
  }

  void hear_position(Rank peer, ConstBytes word) {
    auto const parsed = wire::parse(word, 0);
    if (parsed.result != wire::Parse::ok) return;
    positions_[static_cast<std::size_t>(peer)] = parsed.header;
    heard_positions_ = true;
    compare_position(peer);
  }

  /// Was that rank, when it last said so, in the operation that has the same number here?
  void compare_position(Rank peer) {
    auto const& theirs = positions_[static_cast<std::size_t>(peer)];
    auto const& ours   = announced_.at(theirs.sequence);
    if (theirs.sequence == 0 || ours.sequence != theirs.sequence || ours.fingerprint == theirs.fingerprint) return;
    try {
      throw_mismatch({rank, peer}, theirs, ours);
    } catch (LinkFault const& fault) {
      lose(peer, fault, ours.operation.text());
    }
  }

  std::function<void()> stop_;
  MPI_Comm control_ = MPI_COMM_NULL;
  Announcements announced_;
  std::vector<wire::Header> positions_;                               // [rank] where each said it was; 0: nothing said
  bool heard_positions_ = false;
  std::vector<std::uint64_t> told_positions_;                         // [rank] the operation that each was told last
  std::vector<std::optional<Farewell>> farewells_;                    // [rank] of those that have left
  bool said_goodbye_ = false;
  std::array<wire::HeaderBytes, 64> said_{};                          // where this rank was; on their way
  std::size_t said_next_ = 0;
  std::vector<std::byte> told_;                                       // to the others, when nothing goes on
  std::optional<Loss> lost_;
};

}  // namespace chorale::detail

#endif
