// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/tcp/posted_receives.hpp>
#include <chorale/transport/tcp/send_queue.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>
#include <chorale/transport/wire/encryption.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Receive queue of the messages from one peer, from the socket directly into the memory of posted receives.
///
/// A message without a posted receive, perhaps of an operation that is not announced here yet, stays in the socket. Only
/// if this rank polls for others without success is it stored as an unexpected message, so that they can overtake it.
///
/// keeps   never blocks. Sequence, fingerprint and size are compared before memory is touched, the size of a message of
///         several frames as far as its first frame shows it. Nothing is allocated except for unexpected messages
/// order   of messages with one tag, the one sent first is received first
template <wire::Protection P> class ReceiveQueue {
 public:
  ReceiveQueue() = default;
  explicit ReceiveQueue(detail::Ends ends) : ends_{ends}, staged_(staging) {}

  bool wants() const { return !wanted_.empty(); }
  bool full() const { return wanted_.full(); }
  bool can_read() const { return wants() && (!head_ || has_taker() || is_goodbye()); }  // else it needs a recv() first

  bool received(int place, std::uint64_t turn) const { return wanted_.is_over(place, turn); }
  std::uint64_t turn(int place) const { return wanted_[place].turn; }
  std::uint64_t operation(int place) const { return wanted_[place].announced.sequence; }

  /// Posts a receive, and returns its place. Only if not full().
  ///
  /// throws  ConnectionFault when an unexpected message is another than the receive expects
  int post(detail::LoggedOperation const& announced, Tag tag, Bytes into) {
    auto const place = wanted_.post(announced, tag, into);
    if (destination_ == unexpected && unexpected_.is_coming(tag)) take_over(place);
    else if (unexpected_.give_to(wanted_[place], ends_)) wanted_.finish(place);
    return place;
  }

  /// Receives the bytes that have arrived, while receives are posted; returns their number.
  ///
  /// throws  ConnectionFault
  std::size_t receive(int socket, detail::OperationLog const& announced, P& protection) {
    auto moved = std::size_t{0};
    while (wants()) {
      if (!head_ && !read_head(socket, moved)) break;
      if (is_goodbye()) {
        if (!end_frame(socket, protection, {}, moved)) break;
        throw_left(announced);
      }
      if (destination_ == nobody && !find_taker(announced)) break;
      if (!has_taker()) break;
      if (frame_left_ != 0 && !read_payload(socket, moved)) break;
      if (!end_frame(socket, protection, payload(), moved)) break;
      end_message();
    }
    return moved;
  }

  /// True if a recv() may still get a message, from a peer that sends no more.
  bool has_more(int socket) const {
    if (head_) return !is_goodbye();
    auto head   = wire::HeaderBytes{};
    auto staged = ConstBytes{staged_}.subspan(begin_, end_ - begin_);
    if (staged.empty()) {
      auto const n = ::recv(socket, head.data(), head.size(), MSG_PEEK | MSG_DONTWAIT);
      if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
      staged = ConstBytes{head}.first(static_cast<std::size_t>(n));
    }
    auto const parsed = wire::parse(staged.first(std::min(staged.size(), head.size())), largest_payload);
    return parsed.result != wire::Parse::ok || parsed.header.type != wire::FrameType::goodbye;
  }

 private:
  static constexpr std::size_t staging         = 33 << 10;  // bytes: 32 KiB with a header take one call
  static constexpr int looks_before_unexpected = 64;
  static constexpr int nobody = -2, unexpected = -1;

  /// Reads until so many bytes are staged; false if they have not arrived yet.
  bool stage(int socket, std::size_t bytes, std::size_t& moved) {
    while (end_ - begin_ < bytes) {
      std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_       = 0;
      auto const n = ::recv(socket, staged_.data() + end_, staged_.size() - end_, MSG_DONTWAIT);
      if (!arrived(n)) return false;
      end_ += static_cast<std::size_t>(n);
      moved += static_cast<std::size_t>(n);
    }
    return true;
  }

  bool is_goodbye() const { return head_ && head_->type == wire::FrameType::goodbye; }

  bool read_head(int socket, std::size_t& moved) {
    if (!stage(socket, wire::header_bytes, moved)) return false;
    auto const bytes  = ConstBytes{staged_}.subspan(begin_).template first<wire::header_bytes>();
    auto const parsed = wire::parse(bytes, largest_payload);
    if (parsed.result != wire::Parse::ok) corrupt("a frame from it " + what_is(parsed));
    if constexpr (P::tag_bytes != 0) std::ranges::copy(bytes, head_bytes_.begin());
    begin_ += wire::header_bytes;
    expect_ours(parsed.header);
    head_       = parsed.header;
    frame_left_ = parsed.header.length;
    crc_        = 0;
    return true;
  }

  /// Throws because the peer has ended while receives are posted: perhaps its last operation differs from this rank's.
  [[noreturn]] void throw_left(detail::OperationLog const& announced) const {
    auto const& ours = announced.at(head_->sequence);
    if (head_->sequence != 0 && ours.sequence == head_->sequence && ours.fingerprint != head_->fingerprint)
      detail::throw_mismatch(ends_, *head_, ours);
    throw detail::ConnectionFault{Fault::peer_lost, "it had ended and left the group"};
  }

  static std::string what_is(wire::Parsed const& parsed) {
    switch (parsed.result) {
      case wire::Parse::too_large:
        return "claims " + std::to_string(parsed.header.length) + " bytes, more than " +
               std::to_string(largest_payload);
      case wire::Parse::other_version: return "claims version " + parsed.version.text() + " of the wire";
      case wire::Parse::not_a_frame: return "does not begin like one";
      default: return "has a header whose checksum is wrong";
    }
  }

  [[noreturn]] static void corrupt(std::string reason) {
    throw detail::ConnectionFault{Fault::frame_corrupt, std::move(reason)};
  }

  void expect_ours(wire::Header const& head) const {
    if (head.minor != ends_.minor)
      corrupt("a frame from it claims version " + wire::Version{wire::version.major, head.minor}.text() +
              " of the wire, where " + wire::Version{wire::version.major, ends_.minor}.text() + " was agreed");
    if (head.type == wire::FrameType::goodbye && head.length == 0) return;
    if (head.type != wire::FrameType::data) corrupt("a frame from it is not one of data");
    if (head.from != ends_.peer || head.to != ends_.me || head.incarnation != ends_.incarnation)
      corrupt("a frame from it goes from rank " + std::to_string(head.from) + ", incarnation " +
              std::to_string(head.incarnation) + ", to rank " + std::to_string(head.to));
    auto const more = (head.flags & more_follows) != 0;
    if (more && head.length == 0) corrupt("a frame from it is empty and not the last of its message");
    if (destination_ == nobody) return;
    if (head.tag != first_.tag || head.sequence != first_.sequence || head.fingerprint != first_.fingerprint)
      corrupt("a frame from it is not the next one of the message before it");
    if (destination_ == unexpected) return;
    auto const left = wanted_[destination_].left.size();
    auto const size = wanted_[destination_].size - left + head.length;
    if (more ? head.length >= left : head.length != left)
      detail::expect_same(ends_, wanted_[destination_], head, size, more);
  }

  /// False if nothing has arrived yet. Throws if the connection is closed or broken.
  static bool arrived(::ssize_t n) {
    if (n > 0) return true;
    if (n == 0) throw detail::ConnectionFault{Fault::peer_lost, "it closed the connection"};
    throw_unless_later(errno);
    return false;
  }

  /// Finds the destination of the message that begins with head_; false while there is none.
  bool find_taker(detail::OperationLog const& announced) {
    auto const& head = *head_;
    auto const& ours = announced.at(head.sequence);
    if (head.sequence != 0 && ours.sequence == head.sequence && ours.fingerprint != head.fingerprint)
      detail::throw_mismatch(ends_, head, ours);
    if (auto const place = wanted_.oldest(head.tag); place != PostedReceives::none) {
      detail::expect_same(ends_, wanted_[place], head, head.length, (head.flags & more_follows) != 0);
      destination_ = place;
    } else {
      if (++looks_ < looks_before_unexpected || !unexpected_.has_room_for(head.length)) return false;
      unexpected_.begin(head);
      destination_ = unexpected;
    }
    first_ = head;
    looks_ = 0;
    return true;
  }

  /// True if there is memory for the frame that begins with head_.
  bool has_taker() const {
    return destination_ == unexpected ? grown_ || unexpected_.has_room_for(frame_left_) : destination_ != nobody;
  }

  /// Moves an unexpected message that is still arriving into the receive that has now been posted for it.
  void take_over(int place) {
    auto& wanted    = wanted_[place];
    auto const more = !head_ || (head_->flags & more_follows) != 0;
    auto const got  = unexpected_.take_last();
    auto const here = got.size() - (grown_ ? frame_left_ : 0);  // bytes received
    detail::expect_same(ends_, wanted, first_, here + frame_left_, more);
    std::ranges::copy(ConstBytes{got}.first(here), wanted.left.begin());
    wanted.left  = wanted.left.subspan(here);
    destination_ = place;
  }

  /// Reads the rest of the frame's payload; false if it is not complete yet.
  bool read_payload(int socket, std::size_t& moved) {
    auto into      = memory();
    auto const got = std::min(frame_left_, end_ - begin_);
    if (got != 0) {
      std::memcpy(into.data(), staged_.data() + begin_, got);
      begin_ += got;
      into = filled(into, got);
    }
    while (!into.empty()) {  // nothing is staged now
      auto parts        = std::array{iovec{into.data(), into.size()}, iovec{staged_.data(), staged_.size()}};
      auto packet       = msghdr{};
      packet.msg_iov    = parts.data();
      packet.msg_iovlen = parts.size();  // the next header comes with the last bytes
      auto const n      = ::recvmsg(socket, &packet, MSG_DONTWAIT);
      if (!arrived(n)) return false;
      auto const bytes = static_cast<std::size_t>(n);
      auto const ours  = std::min(bytes, into.size());
      moved += bytes;
      begin_ = 0;
      end_   = bytes - ours;
      into   = filled(into, ours);
    }
    return true;
  }

  /// Returns the memory for the rest of the frame.
  Bytes memory() {
    if (destination_ != unexpected) return wanted_[destination_].left.first(frame_left_);
    return std::exchange(grown_, true) ? unexpected_.last(frame_left_) : unexpected_.grow(frame_left_);
  }

  Bytes filled(Bytes into, std::size_t bytes) {
    if constexpr (P::tag_bytes == 0) crc_ = crc32c(into.first(bytes), crc_);  // just written: still in the cache
    frame_left_ -= bytes;
    if (destination_ != unexpected) wanted_[destination_].left = wanted_[destination_].left.subspan(bytes);
    return into.subspan(bytes);
  }

  /// Returns the payload of the frame, once it is complete.
  Bytes payload() {
    auto const size = static_cast<std::size_t>(head_->length);
    if (size == 0) return {};
    return destination_ == unexpected ? unexpected_.last(size) : Bytes{wanted_[destination_].left.data() - size, size};
  }

  /// Checks the frame's checksum or tag; false if the tag has not arrived yet.
  bool end_frame(int socket, P& protection, Bytes payload, std::size_t& moved) {
    if constexpr (P::tag_bytes == 0) {
      if (crc_ != head_->payload_crc)
        corrupt("the checksum of " + std::to_string(payload.size()) + " bytes from it is wrong");
    } else {
      if (!stage(socket, P::tag_bytes, moved)) return false;
      auto const tag = ConstBytes{staged_}.subspan(begin_).template first<P::tag_bytes>();
      if (!protection.open(head_bytes_, payload, tag))
        corrupt("a sealed frame of " + std::to_string(payload.size()) + " bytes from it does not open");
      begin_ += P::tag_bytes;
    }
    return true;
  }

  void end_message() {
    auto const more = (head_->flags & more_follows) != 0;
    head_.reset();
    grown_ = false;
    if (more) return;
    if (destination_ == unexpected) unexpected_.end();
    else wanted_.finish(destination_);
    destination_ = nobody;
  }

  detail::Ends ends_;
  PostedReceives wanted_;
  UnexpectedMessages unexpected_;
  std::vector<std::byte> staged_;  // read but not parsed: [begin_, end_)
  std::size_t begin_ = 0, end_ = 0;
  std::optional<wire::Header> head_;  // of the frame that is arriving
  std::array<std::byte, P::tag_bytes == 0 ? 0 : wire::header_bytes> head_bytes_{};
  wire::Header first_;                    // of the message that is arriving
  std::size_t frame_left_ = 0;            // bytes of its payload, not yet received
  std::uint32_t crc_      = 0;            // of the payload bytes received
  bool grown_             = false;        // the unexpected message has room for it
  int destination_ = nobody, looks_ = 0;  // a place; polls without a destination
};

}  // namespace chorale::tcp
