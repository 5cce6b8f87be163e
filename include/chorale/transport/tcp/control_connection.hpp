// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/tcp/address.hpp>
#include <chorale/transport/tcp/asio.hpp>
#include <chorale/transport/tcp/handshake_session.hpp>
#include <chorale/transport/tcp/posted_receives.hpp>
#include <chorale/transport/tcp/thread_shared_state.hpp>
#include <chorale/transport/wire/encryption.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Control channel between two ranks: heartbeats, plans, positions, goodbyes and failure reports.
///
/// keeps   bounded memory: one incoming frame of at most 64 KiB, and the outgoing frames, as long as the caller sends
///         heartbeats only if is_idle()
class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  using Socket = asio::ip::tcp::socket;

  static constexpr std::size_t most_payload = 64 << 10;  // bytes; a plan is the longest payload

  struct Host {
    std::function<void(wire::Header const&, ConstBytes)> heard;  // the header of a frame, and its payload
    std::function<void(detail::ConnectionFault const&)> lost;
  };

  /// with    frames are sealed if it has a key
  ControlConnection(AuthenticatedSocket with, detail::Ends ends, std::uint32_t incarnation, Host host)
      : socket_{std::move(with.socket)}, ends_{ends}, incarnation_{incarnation}, host_{std::move(host)},
        in_(wire::header_bytes + most_payload + wire::Sealed::tag_bytes) {
    if (with.key) sealed_.emplace(with.key->session, with.key->end);
  }

  detail::Ends const& ends() const { return ends_; }

  void start() { read(); }

  bool is_idle() const { return going_.empty() && next_.empty(); }

  /// about   operation for the frame's header; default: none
  void send(wire::FrameType type, std::uint8_t flags, ConstBytes payload, detail::LoggedOperation const& about = {}) {
    if (!socket_.is_open()) return;
    auto header        = wire::Header{};
    header.type        = type;
    header.flags       = flags;
    header.incarnation = incarnation_;
    header.from        = ends_.me;
    header.to          = ends_.peer;
    header.minor       = ends_.minor;
    if (about.sequence != 0) describe(header, about);
    header.length      = payload.size();
    header.payload_crc = sealed_ ? 0 : crc32c(payload);
    auto bytes         = wire::HeaderBytes{};
    wire::write(header, bytes);
    next_.insert(next_.end(), bytes.begin(), bytes.end());
    next_.insert(next_.end(), payload.begin(), payload.end());
    if (sealed_) seal(bytes, payload);
    if (going_.empty()) write();
  }

  void close() {
    auto ignored = boost::system::error_code{};
    host_        = {};
    socket_.close(ignored);
  }

 private:
  /// Seals the payload at the end of next_, and appends its tag.
  void seal(ConstBytes header, ConstBytes payload) {
    auto tag = std::array<std::byte, wire::Sealed::tag_bytes>{};
    sealed_->seal(header, payload, Bytes{next_}.last(payload.size()), tag);
    next_.insert(next_.end(), tag.begin(), tag.end());
  }

  /// True if the frame is from this peer, and its checksum is right or, if sealed, it opens. Its header is valid.
  bool is_whole(wire::Header const& head, Bytes frame) {
    auto const payload = frame.subspan(wire::header_bytes, head.length);
    auto const ours    = head.from == ends_.peer && head.to == ends_.me && head.incarnation == ends_.incarnation &&
                      head.minor == ends_.minor;
    if (!sealed_) return ours && crc32c(payload) == head.payload_crc;
    auto const tag = ConstBytes{frame}.last<wire::Sealed::tag_bytes>();
    return ours && sealed_->open(frame.first(wire::header_bytes), payload, tag);
  }

  void write() {
    going_.swap(next_);
    asio::async_write(socket_, asio::buffer(going_), [self = shared_from_this()](auto error, std::size_t) {
      self->going_.clear();
      if (!error && !self->next_.empty()) self->write();  // errors: read() gets them, too
    });
  }

  void read() {
    socket_.async_read_some(asio::buffer(in_.data() + size_, in_.size() - size_),
                            [self = shared_from_this()](auto error, std::size_t n) { self->on_read(error, n); });
  }

  void on_read(boost::system::error_code const& error, std::size_t n) {
    if (!host_.heard) return;
    if (error == asio::error::eof) return lose({Fault::peer_lost, "it closed the connection, or its process ended"});
    if (error) return lose({Fault::peer_lost, "the connection to it broke: " + error.message()});
    size_ += n;
    auto begin = std::size_t{0};
    while (host_.heard) {
      auto const rest   = Bytes{in_}.subspan(begin, size_ - begin);
      auto const parsed = wire::parse(rest, most_payload);
      if (parsed.result == wire::Parse::need_more) break;
      if (parsed.result != wire::Parse::ok) return corrupt();
      auto const whole = wire::header_bytes + parsed.header.length + (sealed_ ? wire::Sealed::tag_bytes : 0);
      if (rest.size() < whole) break;
      if (!is_whole(parsed.header, rest.first(whole))) return corrupt();
      begin += whole;
      auto const heard = host_.heard;  // it may close this connection
      heard(parsed.header, rest.subspan(wire::header_bytes, parsed.header.length));
    }
    if (!host_.heard) return;
    std::copy(in_.begin() + static_cast<std::ptrdiff_t>(begin), in_.begin() + static_cast<std::ptrdiff_t>(size_),
              in_.begin());
    size_ -= begin;
    read();
  }

  void corrupt() { lose({Fault::frame_corrupt, "a frame of its control connection is damaged"}); }

  void lose(detail::ConnectionFault const& fault) {
    auto const host = std::exchange(host_, {});
    if (host.lost) host.lost(fault);
  }

  Socket socket_;
  detail::Ends ends_;
  std::uint32_t incarnation_;  // of this rank
  Host host_;                  // empty once closed
  std::optional<wire::Sealed> sealed_;
  std::vector<std::byte> in_;
  std::size_t size_ = 0;                 // bytes received
  std::vector<std::byte> going_, next_;  // being written; to be written next
};

}  // namespace chorale::tcp
