// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/tcp/send_queue.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace chorale::tcp {

/// Posted receives of a rank from one peer, at most 1024.
///
/// keeps   memory for 64; for more it is allocated when they are first posted, and kept
/// order   of receives with one tag, the one that was posted first is filled first
class PostedReceives {
 public:
  static constexpr int none = -1;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == most; }
  int places() const { return static_cast<int>(places_.size()); }

  detail::PostedReceive& operator[](int place) { return places_[static_cast<std::size_t>(place)]; }
  detail::PostedReceive const& operator[](int place) const { return places_[static_cast<std::size_t>(place)]; }

  /// Posts a receive, and returns its place. Only if not full().
  int post(detail::LoggedOperation const& announced, Tag tag, Bytes into) {
    auto const place = free_place();
    auto& wanted     = (*this)[place];
    wanted           = {tag, announced, into, into.size(), ++orders_, wanted.turn + 1};
    word(place) |= bit(place);
    ++count_;
    return place;
  }
  void finish(int place) {
    word(place) &= ~bit(place);
    --count_;
  }

  /// True if the receive that had this turn of the place is complete.
  bool is_over(int place, std::uint64_t turn) const {
    return (*this)[place].turn != turn || (posted_[static_cast<std::size_t>(place) / 64] & bit(place)) == 0;
  }

  int oldest(Tag tag) const {
    auto found = none;
    for (std::size_t w = 0; w < posted_.size(); ++w)
      for (auto rest = posted_[w]; rest != 0; rest &= rest - 1) {
        auto const place = static_cast<int>(64 * w) + std::countr_zero(rest);
        if ((*this)[place].tag == tag && (found == none || (*this)[place].order < (*this)[found].order)) found = place;
      }
    return found;
  }

 private:
  static constexpr int most = 1'024;

  static std::uint64_t bit(int place) { return std::uint64_t{1} << place % 64; }
  std::uint64_t& word(int place) { return posted_[static_cast<std::size_t>(place) / 64]; }

  int free_place() {
    for (std::size_t w = 0; w < posted_.size(); ++w)
      if (~posted_[w] != 0) return static_cast<int>(64 * w) + std::countr_one(posted_[w]);
    posted_.push_back(0);
    places_.resize(64 * posted_.size());
    return static_cast<int>(64 * (posted_.size() - 1));
  }

  std::vector<detail::PostedReceive> places_ = std::vector<detail::PostedReceive>(64);
  std::vector<std::uint64_t> posted_         = {0};  // a bit for each place
  std::uint64_t orders_                      = 0;    // all posts so far
  int count_                                 = 0;
};

/// Unexpected messages: stored before a receive was posted for them, so that other messages can overtake them.
///
/// keeps   at most 64 MiB, of peers that have passed the handshake
class UnexpectedMessages {
 public:
  static constexpr std::size_t most = 64 << 20;  // bytes

  bool has_room_for(std::size_t bytes) const { return bytes_ + bytes <= most; }

  /// Makes the last message, which is still arriving, longer, and returns the new bytes.
  Bytes grow(std::size_t bytes) {
    auto& last = messages_.back().bytes;
    last.resize(last.size() + bytes);
    bytes_ += bytes;
    return Bytes{last}.last(bytes);
  }
  Bytes last(std::size_t bytes) { return Bytes{messages_.back().bytes}.last(bytes); }

  void begin(wire::Header const& head) { messages_.push_back({head, {}, false}); }
  void end() { messages_.back().whole = true; }

  /// True if the next message with this tag is the last message, which is still arriving.
  bool is_coming(Tag tag) const {
    for (auto const& message : messages_)
      if (message.head.tag == tag) return !message.whole;
    return false;
  }

  /// Removes and returns the last message, whose rest goes to the memory of a posted receive.
  std::vector<std::byte> take_last() {
    auto bytes = std::move(messages_.back().bytes);
    bytes_ -= bytes.size();
    messages_.pop_back();
    return bytes;
  }

  /// Fills the posted receive from the oldest message with its tag, which must be complete; false if there is none.
  ///
  /// throws  ConnectionFault when it is another message than the receive expects
  bool give_to(detail::PostedReceive& wanted, detail::Ends ends) {
    for (auto message = messages_.begin(); message != messages_.end(); ++message) {
      if (message->head.tag != wanted.tag) continue;
      detail::expect_same(ends, wanted, message->head, message->bytes.size(), false);
      if (!message->bytes.empty()) std::memcpy(wanted.left.data(), message->bytes.data(), message->bytes.size());
      bytes_ -= message->bytes.size();
      messages_.erase(message);
      return true;
    }
    return false;
  }

 private:
  struct Message {
    wire::Header head;  // of its first frame
    std::vector<std::byte> bytes;
    bool whole;
  };

  std::deque<Message> messages_;
  std::size_t bytes_ = 0;
};

}  // namespace chorale::tcp
