// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/types.hpp>
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
#include <span>
#include <vector>

namespace chorale::tcp {

inline constexpr unsigned messages_per_link  = 64;         // in flight between two ranks, each way
inline constexpr std::size_t frame_payload   = 256 << 10;  // bytes; still in the cache when it is sent
inline constexpr std::size_t largest_payload = 1 << 20;    // bytes of payload that a frame may have
inline constexpr std::uint8_t more_follows   = 1;          // flag: not the last frame of its message

/// Throws a ConnectionFault for the error of a socket call, unless the call is to be retried later.
inline void throw_unless_later(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return;
  if (error == ETIMEDOUT)
    throw detail::ConnectionFault{Fault::peer_stalled, "what was sent to it was not acknowledged in time"};
  throw detail::ConnectionFault{Fault::peer_lost, "the connection to it broke: " + errno_text(error)};
}

/// Send queue of the messages to one peer, which writes them to a socket in the order of send().
///
///   | header 64 | payload, at most 256 KiB | tag, if sealed | header 64 | ...     a message is one frame or more
///
/// keeps   never blocks, allocates nothing after the constructor; at most 64 messages
template <wire::Protection P> class SendQueue {
 public:
  SendQueue() : room_(P::tag_bytes == 0 ? 0 : frame_payload) {}

  bool empty() const { return sent_ == posted_; }
  bool full() const { return posted_ - sent_ == messages_per_link; }

  /// True if the message with this number has been written to the socket: its memory may be reused.
  bool sent(std::uint64_t number) const { return number <= sent_; }

  /// Number of the operation of the oldest unsent message, 0 for none. Only if not empty().
  std::uint64_t operation() const { return queue_[sent_ % messages_per_link].header.sequence; }

  /// Enqueues a message, and returns its number. Only if not full().
  std::uint64_t post(wire::Header const& header, ConstBytes bytes) {
    queue_[posted_ % messages_per_link] = {header, bytes};
    return ++posted_;
  }

  /// Writes as much as the socket takes; returns the number of bytes.
  ///
  /// throws  ConnectionFault
  std::size_t flush(int socket, P& protection) {
    auto moved = std::size_t{0};
    while (!empty()) {
      if (in_the_socket()) begin_frame(protection);
      auto parts        = std::array{iovec{head_.data() + (head_.size() - head_left_), head_left_},
                              iovec{const_cast<std::byte*>(payload_left_.data()), payload_left_.size()},
                              iovec{tag_.data() + (tag_.size() - tag_left_), tag_left_}};
      auto packet       = msghdr{};
      packet.msg_iov    = parts.data();
      packet.msg_iovlen = parts.size();
      auto const n      = ::sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        if (errno == EINTR) continue;
        throw_unless_later(errno);
        break;
      }
      take(static_cast<std::size_t>(n));
      moved += static_cast<std::size_t>(n);
    }
    return moved;
  }

 private:
  struct Message {
    wire::Header header;
    ConstBytes left;  // not yet in a frame
  };

  bool in_the_socket() const { return head_left_ == 0 && payload_left_.empty() && tag_left_ == 0; }

  void begin_frame(P& protection) {
    auto& message              = queue_[sent_ % messages_per_link];
    payload_left_              = message.left.first(std::min(frame_payload, message.left.size()));
    message.left               = message.left.subspan(payload_left_.size());
    message.header.flags       = message.left.empty() ? 0 : more_follows;
    message.header.length      = payload_left_.size();
    message.header.payload_crc = P::tag_bytes == 0 ? crc32c(payload_left_) : 0;  // which also brings it into the cache
    wire::write(message.header, head_);
    payload_left_ = protection.seal(head_, payload_left_, room_, tag_);
    head_left_    = head_.size();
    tag_left_     = tag_.size();
  }

  void take(std::size_t n) {
    auto const of_head = std::min(n, head_left_), of_payload = std::min(n - of_head, payload_left_.size());
    head_left_ -= of_head;
    payload_left_ = payload_left_.subspan(of_payload);
    tag_left_ -= n - of_head - of_payload;
    if (in_the_socket() && queue_[sent_ % messages_per_link].left.empty()) ++sent_;
  }

  std::array<Message, messages_per_link> queue_;
  std::uint64_t posted_ = 0, sent_ = 0;
  wire::HeaderBytes head_{};
  std::size_t head_left_ = 0;  // bytes at its end
  ConstBytes payload_left_;
  std::array<std::byte, P::tag_bytes> tag_{};
  std::size_t tag_left_ = 0;     // bytes at its end
  std::vector<std::byte> room_;  // for a sealed payload
};

}  // namespace chorale::tcp
