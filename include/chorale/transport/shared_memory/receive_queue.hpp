// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/shared_memory/rank_state.hpp>
#include <chorale/transport/shared_memory/segment.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>
#include <chorale/transport/shared_memory/send_queue.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace chorale::shared_memory {

/// The receiver's end of a SegmentChannel: unexpected messages, and posted receives whose message has not arrived.
///
/// keeps   a message stays in its slot until it is received, and until its operation is announced on this rank, too
class ReceiveQueue {
 public:
  ReceiveQueue(RankState& rank_state, Rank from)
      : rank_state_{rank_state},
        file_{rank_state.segment().file},
        me_{rank_state.rank()},
        from_{from},
        lane_{file_.lane(from, me_)} {}

  bool has_room() const { return ~busy_ != 0; }

  /// Posts a receive; only if has_room().
  SlotTicket expect(Tag tag, Bytes in) {
    auto const i = static_cast<unsigned>(std::countr_one(busy_));
    busy_ |= bit(i);
    receives_[i] = {tag, rank_state_.announced(tag, from_), in, 0, receives_[i].turn + 1};
    wanted_.push(i);
    changed_ = true;
    return {i, receives_[i].turn};
  }

  bool is_done(SlotTicket ticket) const {
    return receives_[ticket.slot].turn != ticket.turn || (busy_ & bit(ticket.slot)) == 0;
  }

  bool is_waiting() const { return busy_ != 0; }

  /// Makes all possible progress; true if something moved.
  ///
  /// throws  Disagreement when a message that has arrived belongs to another operation, or has another size
  bool look() {
    while (arrived_.size < segment_slots && next_slot().turn.load(std::memory_order_acquire) == messages_ + 1) {
      arrived_.push(next_);
      next_ = next_slot().next % segment_slots;
      ++messages_;
      changed_ = true;
    }
    auto const moved = changed_ && match();
    return drain() || moved;
  }

  /// Matches messages and posted receives again: operations may have been announced since.
  void look_again() {
    changed_ = true;
    look();
    for (auto rest = busy_; rest != 0; rest &= rest - 1) {
      auto const& receive = receives_[static_cast<unsigned>(std::countr_zero(rest))];
      rank_state_.expect_same(from_, receive.tag, receive.about);
    }
  }

 private:
  struct Receive {
    Tag tag;
    AnnouncedOperations about;
    Bytes rest;                                                       // still to be filled
    unsigned slot;                                                    // of its message, once matched
    std::uint64_t turn;
  };

  /// Numbers below 64 in the order in which they were pushed; any of them may be removed.
  struct Line {
    std::array<std::uint8_t, segment_slots> numbers{};
    std::size_t size = 0;

    void push(unsigned number) { numbers[size++] = static_cast<std::uint8_t>(number); }
    void remove(std::size_t i) {
      std::copy(numbers.data() + i + 1, numbers.data() + size, numbers.data() + i);
      --size;
    }
  };

  static std::uint64_t bit(unsigned i) { return std::uint64_t{1} << i; }

  SegmentSlot& next_slot() const { return file_.slot(from_, me_, next_); }

  /// Takes every message that has a posted receive.
  bool match() {
    auto moved = false;
    changed_   = false;
    for (auto a = std::size_t{0}; a < arrived_.size;) {
      auto const& slot  = file_.slot(from_, me_, arrived_.numbers[a]);
      auto const theirs = AnnouncedOperations{slot.sequence, slot.fingerprint};
      auto const tag    = Tag{slot.tag};
      auto const w      = find_wanted(tag, theirs);
      if (w == wanted_.size) {
        if (theirs.sequence != 0 && !rank_state_.is_ahead(theirs.sequence) &&
            rank_state_.announced(tag, from_) != theirs)
          rank_state_.mismatch(from_, tag, theirs, {theirs.sequence});  // ours of that number may have another tag
        ++a;
        continue;
      }
      take(wanted_.numbers[w], arrived_.numbers[a]);
      wanted_.remove(w);
      arrived_.remove(a);
      moved = true;
    }
    return moved;
  }

  /// Index in `wanted_` of the first posted receive with this tag; its size if there is none.
  std::size_t find_wanted(Tag tag, AnnouncedOperations theirs) {
    for (auto w = std::size_t{0}; w < wanted_.size; ++w) {
      auto const& receive = receives_[wanted_.numbers[w]];
      if (receive.tag != tag) continue;
      if (receive.about != theirs) rank_state_.mismatch(from_, tag, theirs, receive.about);
      return w;
    }
    return wanted_.size;
  }

  /// Copies the bytes in the arena or in the slot; the rest of a large message passes the stage.
  void take(unsigned i, unsigned at) {
    auto& receive   = receives_[i];
    auto& slot      = file_.slot(from_, me_, at);
    auto const size = slot.size;
    if (size != receive.rest.size())
      rank_state_.disagree(from_, receive.about.sequence,
                     "rank " + std::to_string(from_) + " sent " + std::to_string(size) + " bytes where rank " +
                         std::to_string(me_) + " expected " + std::to_string(receive.rest.size()) + " bytes, tag " +
                         std::to_string(slot.tag));
    receive.slot = at;
    if (slot.place != 0) {
      auto const bytes = file_.in_arena(from_, slot.place, size);
      auto const hold  = Segment::Hold{rank_state_.segment(), me_, from_};
      copy(receive, bytes);
    } else {
      copy(receive, {SegmentMemory::inside(slot), std::min(size, file_.layout.inside())});
    }
    if (receive.rest.empty()) return finish(i);
    lane_.grants[granted_ % segment_slots] = static_cast<std::uint8_t>(at);
    streams_.push(i);
    lane_.granted.store(++granted_, std::memory_order_release);
    rank_state_.segment().ring(from_);
  }

  /// Copies one segment from the stage, if there is one; true if it did.
  bool drain() {
    if (streams_.size == 0 || lane_.filled.load(std::memory_order_acquire) == drained_) return false;
    auto const i  = unsigned{streams_.numbers[0]};
    auto& receive = receives_[i];
    copy(receive, {file_.stage(from_, me_, drained_), std::min(receive.rest.size(), file_.layout.segment())});
    lane_.drained.store(++drained_, std::memory_order_release);
    if (receive.rest.empty()) {
      streams_.remove(0);
      finish(i);
    } else {
      rank_state_.segment().ring(from_);
    }
    return true;
  }

  static void copy(Receive& receive, ConstBytes from) {
    if (from.empty()) return;
    std::memcpy(receive.rest.data(), from.data(), from.size());
    receive.rest = receive.rest.subspan(from.size());
  }

  void finish(unsigned i) {
    auto const at_once = file_.slot(from_, me_, receives_[i].slot).size <= file_.layout.inside();
    busy_ &= ~bit(i);
    freed_ ^= bit(receives_[i].slot);
    lane_.freed.store(freed_, std::memory_order_release);
    if (at_once) rank_state_.segment().ring_for_room(from_);          // the sender was done when it was sent
    else rank_state_.segment().ring(from_);
  }

  RankState& rank_state_;
  SegmentMemory const file_;
  Rank const me_, from_;
  SegmentChannel& lane_;
  unsigned next_ = 0;                                                 // the slot of the next message
  bool changed_  = false;                                             // since the last match()
  std::uint64_t messages_ = 0;                                        // that have arrived
  std::uint64_t freed_ = 0, drained_ = 0, granted_ = 0;               // as in `lane_`
  std::uint64_t busy_ = 0;                                            // bit i: receive i is posted
  std::array<Receive, segment_slots> receives_{};
  Line arrived_, wanted_, streams_;                                   // slots; receives; receives in granted order
};

}  // namespace chorale::shared_memory
