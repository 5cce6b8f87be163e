// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/shared_memory/rank_state.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace chorale::shared_memory {

/// Identifies a send or a receive: its slot, and a turn that distinguishes it from others in this slot.
struct SlotTicket {
  unsigned slot      = 0;
  std::uint64_t turn = 0;
};

/// The sender's end of a SegmentChannel.
///
///   small          copied into the slot                       done at once
///   in the arena   read by the receiver where it is           done when the receiver has read it
///   large          its start is copied into the slot; the     done when the rest is on the stage
///                  rest passes the stage, in segments, once
///                  the receiver has granted it
class SendQueue {
 public:
  SendQueue(RankState& rank_state, Rank to)
      : rank_state_{rank_state}, file_{rank_state.segment().file}, me_{rank_state.rank()}, to_{to},
        lane_{file_.lane(me_, to)}, arena_{file_.arena(me_)} {}

  bool has_room() {
    if (free_ == 0) find_free();
    return free_ != 0;
  }

  /// Enqueues a message; only if has_room().
  SlotTicket post(Tag tag, ConstBytes out) {
    auto const at       = next_;
    auto& slot          = file_.slot(me_, to_, at);
    auto const about    = rank_state_.announced(tag, to_);
    auto const is_small = out.size() <= file_.layout.inside();
    auto const in_place = !is_small && is_in_arena(out);
    auto const copied   = in_place ? 0 : std::min(out.size(), file_.layout.inside());
    next_               = static_cast<unsigned>(std::countr_zero(free_));
    slot.sequence       = about.sequence;
    slot.fingerprint    = about.fingerprint;
    slot.tag            = static_cast<std::uint32_t>(tag);
    slot.size           = out.size();
    slot.place          = in_place ? static_cast<std::uint64_t>(out.data() - file_.base) : 0;
    slot.next           = next_;
    if (copied != 0) std::memcpy(SegmentMemory::inside(slot), out.data(), copied);
    slot.turn.store(++turn_, std::memory_order_release);
    rank_state_.segment().ring(to_);
    filled_ ^= bit(at);
    sends_[at] = {out.subspan(copied), turn_};
    if (!is_small) (in_place ? in_place_ : streaming_) |= bit(at);
    find_free();  // for the next message, off the critical path
    return {at, turn_};
  }

  bool is_done(SlotTicket ticket) {
    auto const mine = bit(ticket.slot);
    if (sends_[ticket.slot].turn != ticket.turn) return true;
    if ((in_place_ & mine) != 0 && ((filled_ ^ lane_.freed.load(std::memory_order_acquire)) & mine) == 0)
      in_place_ &= ~mine;
    return ((in_place_ | streaming_) & mine) == 0;
  }

  bool is_streaming() const { return streaming_ != 0; }

  /// True if the receiver has all messages, or copies of them.
  bool is_idle() {
    in_place_ &= filled_ ^ lane_.freed.load(std::memory_order_acquire);
    return (in_place_ | streaming_) == 0;
  }

  /// Copies one segment to the stage, if the receiver has granted one and there is room; true if it did.
  bool feed() {
    if (lane_.granted.load(std::memory_order_acquire) == passed_) return false;
    if (segments_ - lane_.drained.load(std::memory_order_acquire) >= SegmentLayout::segments) return false;
    auto const at = unsigned{lane_.grants[passed_ % segment_slots]};
    CHORALE_ENSURES(at < segment_slots && (streaming_ & bit(at)) != 0,
                    "rank " + std::to_string(to_) + " wants message slot " + std::to_string(at) + ", which is empty");
    auto& rest   = sends_[at].rest;
    auto const n = std::min(rest.size(), file_.layout.segment());
    std::memcpy(file_.stage(me_, to_, segments_), rest.data(), n);
    lane_.filled.store(++segments_, std::memory_order_release);
    rest = rest.subspan(n);
    if (rest.empty()) {
      streaming_ &= ~bit(at);
      ++passed_;
    }
    return true;
  }

 private:
  struct Send {
    ConstBytes rest;
    std::uint64_t turn = 0;
  };

  static std::uint64_t bit(unsigned slot) { return std::uint64_t{1} << slot; }

  bool is_in_arena(ConstBytes out) const {
    auto const begin = reinterpret_cast<std::uintptr_t>(arena_.data());
    auto const first = reinterpret_cast<std::uintptr_t>(out.data());
    return first >= begin && first - begin <= arena_.size() && out.size() <= arena_.size() - (first - begin);
  }

  /// Finds the free slots. The lowest are used first: they are in the caches of both ranks.
  void find_free() { free_ = ~(filled_ ^ lane_.freed.load(std::memory_order_acquire)) & ~bit(next_); }

  RankState& rank_state_;
  SegmentMemory const file_;
  Rank const me_, to_;
  SegmentChannel& lane_;
  Bytes const arena_;
  unsigned next_          = 0;                  // the slot that the receiver polls; free
  std::uint64_t turn_     = 0;                  // messages sent
  std::uint64_t free_     = ~std::uint64_t{1};  // other slots that were free at the last check
  std::uint64_t filled_   = 0;                  // bit i flips when slot i is filled
  std::uint64_t in_place_ = 0, streaming_ = 0;  // bit i: slot i's message is not done yet
  std::uint64_t segments_ = 0, passed_ = 0;     // put on the stage; messages that passed it
  std::array<Send, segment_slots> sends_{};
};

}  // namespace chorale::shared_memory
