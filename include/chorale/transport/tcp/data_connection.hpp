// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/tcp/mesh_builder.hpp>
#include <chorale/transport/tcp/posted_receives.hpp>
#include <chorale/transport/tcp/receive_queue.hpp>
#include <chorale/transport/tcp/send_queue.hpp>
#include <chorale/transport/tcp/socket.hpp>
#include <chorale/transport/wire/encryption.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace chorale::tcp {

/// Messages of a rank to itself: copied once, when the send and the receive are posted.
class SelfConnection {
 public:
  explicit SelfConnection(Rank me) : ends_{me, me, 0} {}

  PostedReceives sends, recvs;  // `left` of a send is only read

  /// Completes sends and receives that match; true if there were any. Throws ConnectionFault.
  bool meet() {
    auto any = false;
    for (int place = 0; place < recvs.places(); ++place) {
      if (recvs.is_over(place, recvs[place].turn)) continue;
      auto& in       = recvs[recvs.oldest(recvs[place].tag)];
      auto const out = sends.oldest(in.tag);
      if (out == PostedReceives::none) continue;
      auto head        = wire::Header{};
      head.sequence    = sends[out].announced.sequence;
      head.fingerprint = sends[out].announced.fingerprint;
      head.count       = sends[out].size;
      detail::expect_same(ends_, in, head, sends[out].size, false);
      if (in.size != 0) std::memcpy(in.left.data(), sends[out].left.data(), in.size);
      sends.finish(out);
      recvs.finish(recvs.oldest(in.tag));
      any = true;
    }
    return any;
  }

 private:
  detail::Ends ends_;
};

/// Data connection to another rank, with the messages on it.
///
/// broken   with FailureScope::peer: a fault of this direction was reported, and it is not used any more
template <wire::Protection P> struct DataConnection {
  FileDescriptor socket{};
  SendQueue<P> outbox{};
  ReceiveQueue<P> inbox{};
  std::optional<P> protection{};
  std::uint8_t minor = wire::version.minor;  // of the wire version that both ends use
  bool out_broken = false, in_broken = false;
  bool said_goodbye = false;

  /// ends    without the minor, which `line` has
  void open(detail::Ends ends, DataSocket line) {
    ends.minor = minor = line.minor;
    socket             = std::move(line.socket);
    inbox              = ReceiveQueue<P>{ends};
    if constexpr (P::tag_bytes != 0) protection.emplace(line.key->session, line.key->end);
    else protection.emplace();
  }

  /// Sends a goodbye frame, once, if no message is left to send. The peer reads it after all messages.
  ///
  /// ends    of this rank, with its own incarnation
  /// last    the operation that this rank announced last
  void say_goodbye(detail::Ends ends, detail::LoggedOperation const& last) {
    if (!socket.is_open() || !outbox.empty() || std::exchange(said_goodbye, true)) return;
    auto head        = wire::Header{};
    head.type        = wire::FrameType::goodbye;
    head.incarnation = ends.incarnation;
    head.from        = ends.me;
    head.to          = ends.peer;
    head.minor       = minor;
    if (last.sequence != 0) describe(head, last);
    auto bytes = wire::HeaderBytes{};
    auto tag   = std::array<std::byte, P::tag_bytes>{};
    wire::write(head, bytes);
    protection->seal(bytes, {}, {}, tag);
    auto parts        = std::array{iovec{bytes.data(), bytes.size()}, iovec{tag.data(), tag.size()}};
    auto packet       = msghdr{};
    packet.msg_iov    = parts.data();
    packet.msg_iovlen = parts.size();
    ::sendmsg(socket.number(), &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // Closing a socket with unread bytes in it would throw away what the peer has not got yet.
  void hang_up() {
    if (!socket.is_open()) return;
    auto bytes = std::array<std::byte, 4096>{};
    ::shutdown(socket.number(), SHUT_WR);
    while (::recv(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {}
  }
};

}  // namespace chorale::tcp
