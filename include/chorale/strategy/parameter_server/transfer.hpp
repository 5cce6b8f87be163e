// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/pieces.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace chorale::parameter_server {

/// Memory that a message arrives in: called with n, it returns its first n bytes, with what they held.
using Grow = std::function<Bytes(std::size_t)>;

/// The memory of a vector, which never becomes shorter.
template <class T> Grow growing(std::vector<T>& values) {
  return [&values](std::size_t bytes) {
    values.resize(std::max(values.size(), bytes / sizeof(T)));
    return std::as_writable_bytes(Span<T>{values}).first(bytes);
  };
}

/// Messages to one rank, or from it, in order, a few of them in flight at a time. Never blocks.
///
/// keeps   nothing is allocated if there were as many messages before
template <Endpoint E> class Transfer {
 public:
  enum class Direction { out, in };

  explicit Transfer(Direction direction) : direction_{direction} {}

  void add(ConstBytes message) { messages_.push_back({const_cast<std::byte*>(message.data()), message.size()}); }

  /// Adds a message in pieces; both ends must add it in pieces.
  void add_cut(ConstBytes message) {
    constexpr auto most = std::size_t{512} << 10;
    for (auto left = message; !left.empty(); left = left.subspan(std::min(most, left.size())))
      add(left.first(std::min(most, left.size())));
  }

  /// Adds a message of n bytes, as the other end has announced, that it adds with add_cut(). Where there is room for less,
  /// memory grows by a piece when what is before it has arrived.
  void add_growing(std::size_t n, std::size_t room, Grow grow) {
    if (n <= room) return add_cut(grow(n));
    growing_.push_back({messages_.size(), n, 0, std::move(grow)});
  }

  bool empty() const { return messages_.empty() && growing_.empty(); }  // all are done
  std::size_t bytes() const { return bytes_; }                          // of all that are done

  /// Starts messages, and completes finished ones; true if one was completed.
  ///
  /// throws  like E
  bool advance(E& at, Rank peer, Tag tag) {
    auto const before = done_;
    for (;;) {
      for (; posted_ - done_ < under_way; ++posted_) {
        if (!growing_.empty() && growing_.front().before == posted_) {
          if (done_ != posted_) break;  // memory moves: nothing is on its way into it
          add_piece();
        }
        if (posted_ == messages_.size()) break;
        auto const message = messages_[posted_];
        in_flight_[posted_ % under_way] =
            direction_ == Direction::out ? at.send(peer, tag, message) : at.recv(peer, tag, message);
      }
      if (done_ == posted_ || !in_flight_[done_ % under_way].done()) break;
      bytes_ += messages_[done_++].size();
    }
    auto const any = done_ != before;
    if (done_ == messages_.size() && growing_.empty()) clear();
    return any;
  }

  /// Discards the remaining messages: the other end is gone.
  void clear() {
    messages_.clear();
    growing_.clear();
    posted_ = done_ = 0;
  }

 private:
  static constexpr std::size_t under_way = 8;

  struct Growing {
    std::size_t before, bytes, begun;  // messages_[before] comes after it
    Grow grow;
  };

  /// Makes memory for the next piece of the first growing message, and adds it.
  void add_piece() {
    auto& next       = growing_.front();
    auto const begin = next.begun;
    next.begun       = std::min(next.bytes, begin + piece_bytes);
    auto behind      = std::vector<Bytes>(messages_.begin() + static_cast<std::ptrdiff_t>(posted_), messages_.end());
    messages_.resize(posted_);
    add_cut(next.grow(next.begun).subspan(begin));
    auto const added = messages_.size() - posted_;
    messages_.insert(messages_.end(), behind.begin(), behind.end());
    for (auto& other : growing_) other.before += added;
    if (next.begun == next.bytes) growing_.erase(growing_.begin());
  }

  Direction direction_;
  std::vector<Bytes> messages_;
  std::vector<Growing> growing_;
  std::size_t posted_ = 0, done_ = 0;
  std::array<typename E::pending, under_way> in_flight_;
  std::size_t bytes_ = 0;
};

/// One request to a rank at a time, and its reply: a header, and what the header announces. Never blocks.
///
///   this rank   ───  request: its messages  ──────────────▶   peer
///               ◀──  reply: a header, then its messages  ──
///
/// keeps   messages are sent from, and received into, the caller's memory, which lives until the request is complete
template <Endpoint E> class RequestReply {
 public:
  RequestReply(E& at, Rank peer, Tag tag) : at_{&at}, peer_{peer}, tag_{tag} {}

  E& endpoint() const { return *at_; }
  Rank peer() const { return peer_; }
  Tag tag() const { return tag_; }

  bool busy() const { return stage_ != Stage::idle; }
  std::size_t bytes() const { return in_.bytes() + out_.bytes(); }  // sent and received, of all requests

  Transfer<E>& request() { return out_; }  // filled before begin()
  Transfer<E>& reply() { return in_; }     // filled when the header has arrived

  /// Starts to send the request. `header` is the memory of the reply's header.
  void begin(Bytes header) {
    in_.add(header);
    stage_ = Stage::header;
  }

  /// Starts to send a request that has no reply.
  void begin_without_reply() { stage_ = Stage::data; }

  /// Advances the request; true if there was progress.
  ///
  /// arrived   called when the header of the reply has arrived: checks it, and adds the messages that follow to reply()
  /// throws    what E and `arrived` throw
  template <class Arrived> bool advance(Arrived&& arrived) {
    if (!busy()) return false;
    auto const sent     = out_.advance(*at_, peer_, tag_);
    auto const received = in_.advance(*at_, peer_, tag_);
    if (!in_.empty()) return sent || received;
    if (stage_ == Stage::header) {
      arrived();
      stage_ = Stage::data;
      return true;
    }
    if (!out_.empty()) return sent || received;
    stage_ = Stage::idle;
    return true;
  }

  /// Ends the request as it is: the peer is gone.
  void abandon() {
    in_.clear();
    out_.clear();
    stage_ = Stage::idle;
  }

 private:
  enum class Stage { idle, header, data };

  E* at_;
  Rank peer_;
  Tag tag_;
  Stage stage_ = Stage::idle;
  Transfer<E> in_{Transfer<E>::Direction::in}, out_{Transfer<E>::Direction::out};
};

/// Pauses of a thread that has nothing to do: waits for any message if the endpoint can, else spins, yields and sleeps.
class Idle {
 public:
  template <Endpoint E> void rest_at(E& at) {
    if constexpr (requires { rest(at, longest); }) rest(at, longest);  // found by ADL, in namespace chorale
    else patience_.pause();
  }
  void busy() { patience_ = Backoff{spins}; }

 private:
  static constexpr std::chrono::nanoseconds longest = std::chrono::milliseconds{10};

  static constexpr int spins = 20;  // each polls the system about every rank

  Backoff patience_{spins};
};

/// True if the endpoint knows that a rank is gone, and continues without it.
template <Endpoint E> bool knows_lost(E& at, Rank rank) {
  if constexpr (requires { at.lost(rank); }) return static_cast<bool>(at.lost(rank));
  else return false;
}

/// Memory of an endpoint that other ranks read without a copy; empty if there is none.
template <Endpoint E> Bytes readable(E& at) {
  if constexpr (ReadsInPlace<E>) return at.memory();
  else return {};
}

/// Names the place of gradients in this rank's memory(): 1 + their offset in bytes; 0 if they are not stored there.
template <Endpoint E> std::uint64_t place_of(E& at, Span<float const> gradients) {
  if constexpr (ReadsInPlace<E>) {
    auto const memory = at.memory();
    auto const bytes  = std::as_bytes(gradients);
    auto const before = std::less<>{};
    if (bytes.empty() || before(bytes.data(), memory.data()) ||
        before(memory.data() + memory.size(), bytes.data() + bytes.size()))
      return 0;
    return 1 + static_cast<std::uint64_t>(bytes.data() - memory.data());
  } else {
    return 0;
  }
}

/// The gradients that a request names by their place: the flat buffer, or rows. Empty if they are not in that memory.
template <Endpoint E> Span<float const> in_place(E& at, Rank worker, Request const& r, ShardLayout const& shards) {
  if constexpr (ReadsInPlace<E>) {
    auto const memory = at.memory_of(worker);
    auto const first  = r.place - 1;
    auto const floats = of_rows(r.call) ? r.count * r.table.width : shards.dense_extent();
    if (first % sizeof(float) != 0 || first > memory.size() || floats > (memory.size() - first) / sizeof(float))
      return {};
    return {reinterpret_cast<float const*>(memory.data() + first), floats};
  } else {
    return {};
  }
}

}  // namespace chorale::parameter_server
