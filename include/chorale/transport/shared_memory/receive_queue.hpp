// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/shared_memory/rank_state.hpp>
#include <chorale/transport/shared_memory/segment.hpp>
#include <chorale/transport/shared_memory/segment_layout.hpp>
#include <chorale/transport/shared_memory/send_queue.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <string>
#include <vector>

namespace chorale::shared_memory {

/// The receiver's end of a SegmentChannel: unexpected messages, and posted receives whose message has not arrived.
///
/// A message stays in its slot until it is received. Only if this rank waits for others while all slots are taken by
/// messages that it waits for none of, these are stored, so that others can follow.
///
/// keeps   at most 1024 posted receives, and 64 MiB of stored messages. Memory is allocated for more than 64 receives
///         when they are first posted, and for stored messages
class ReceiveQueue {
 public:
  ReceiveQueue(RankState& rank_state, Rank from)
      : rank_state_{rank_state}, file_{rank_state.segment().file}, me_{rank_state.rank()}, from_{from},
        lane_{file_.lane(from, me_)} {
    arrived_.reserve(segment_slots);
    streams_.reserve(segment_slots);
    grow();
  }

  bool has_room() const { return posted_ < most_receives; }

  /// Posts a receive; only if has_room().
  ///
  /// throws  Disagreement when a stored message is another than the receive expects
  SlotTicket expect(Tag tag, Bytes in) {
    auto const i = take_place({tag, rank_state_.announced(tag, from_), in});
    ++posted_;
    if (!take_stored(i)) wanted_.push_back(i);
    changed_ = true;
    return {i, receives_[i].turn};
  }

  bool is_done(SlotTicket ticket) const {
    return receives_[ticket.slot].turn != ticket.turn || !receives_[ticket.slot].busy;
  }

  bool is_waiting() const { return posted_ != 0; }
  bool is_moving() const { return is_waiting() || !streams_.empty(); }

  /// Makes all possible progress; true if something moved.
  ///
  /// throws  Disagreement when a message that has arrived belongs to another operation, or has another size
  bool look() {
    collect();
    auto const moved = changed_ && match();
    return drain() || moved;
  }

  /// Stores messages that nobody waits for, if they take all slots; true if it did. Only after look() moved nothing.
  bool make_room() {
    collect();
    if (arrived_.size() < segment_slots - 1 || (changed_ && match())) return false;
    auto const before = arrived_.size();
    while (arrived_.size() > segment_slots / 2) {
      auto const size = file_.slot(from_, me_, arrived_.front()).size;
      if (size + sizeof(Stored) > most_stored - stored_bytes_) {
        lane_.kept.store(std::max<std::size_t>(1, stored_bytes_), std::memory_order_relaxed);  // for an error
        break;
      }
      store(arrived_.front());
      arrived_.erase(arrived_.begin());
    }
    return arrived_.size() < before;
  }

  /// Matches messages and posted receives again: operations may have been announced since.
  void look_again() {
    changed_ = true;
    look();
    for (auto const& receive : receives_)
      if (receive.busy) rank_state_.expect_same(from_, receive.tag, receive.about);
  }

 private:
  static constexpr std::size_t most_receives = 1'024, most_stored = 64 << 20;  // bytes
  static constexpr auto no_receive = ~0U;

  /// A message that was stored before a receive was posted for it.
  ///
  /// taker   the receive that has been posted for it while it was still arriving
  struct Stored {
    Tag tag;
    AnnouncedOperations about;
    std::vector<std::byte> bytes;
    bool whole     = false;
    unsigned taker = no_receive;
    std::list<Stored>::iterator place{};  // its own
  };

  struct Receive {
    Tag tag{};
    AnnouncedOperations about{};
    Bytes rest{};                  // still to be filled
    Stored* into       = nullptr;  // if it only stores a message
    unsigned slot      = 0;        // of its message, once matched
    std::uint64_t turn = 0;
    bool busy          = false;
  };

  static std::uint64_t bit(unsigned i) { return std::uint64_t{1} << i; }

  void grow() {
    for (auto i = receives_.size() + segment_slots; i-- > receives_.size();) free_.push_back(static_cast<unsigned>(i));
    receives_.resize(receives_.size() + segment_slots);
  }

  unsigned take_place(Receive receive) {
    if (free_.empty()) grow();
    auto const i = free_.back();
    free_.pop_back();
    receive.turn = receives_[i].turn + 1;
    receive.busy = true;
    receives_[i] = receive;
    return i;
  }

  void collect() {
    while (arrived_.size() < segment_slots && next_slot().turn.load(std::memory_order_acquire) == messages_ + 1) {
      arrived_.push_back(next_);
      next_ = next_slot().next % segment_slots;
      ++messages_;
      changed_ = true;
    }
  }

  /// Begins to store the message in a slot: at once, or as it passes the stage.
  void store(unsigned at) {
    auto const& slot = file_.slot(from_, me_, at);
    auto& kept       = stored_.emplace_back(
        Stored{Tag{slot.tag}, {slot.sequence, slot.fingerprint}, std::vector<std::byte>(slot.size)});
    stored_bytes_ += slot.size + sizeof(Stored);
    kept.place = std::prev(stored_.end());
    take(take_place({kept.tag, kept.about, kept.bytes, &kept}), at);
  }

  /// Gives a receive the oldest stored message with its tag; false if there is none.
  bool take_stored(unsigned i) {
    auto const found = std::ranges::find_if(
        stored_, [&](Stored const& one) { return one.tag == receives_[i].tag && one.taker == no_receive; });
    if (found == stored_.end()) return false;
    if (found->about != receives_[i].about) rank_state_.mismatch(from_, found->tag, found->about, receives_[i].about);
    expect_size(receives_[i], found->bytes.size());
    found->taker = i;
    if (found->whole) hand_over(*found);
    return true;
  }

  void hand_over(Stored const& kept) {
    auto const taker = kept.taker;
    copy(receives_[taker], kept.bytes);
    stored_bytes_ -= kept.bytes.size() + sizeof(Stored);
    lane_.kept.store(0, std::memory_order_relaxed);
    stored_.erase(kept.place);
    release(taker);
    --posted_;
  }

  void expect_size(Receive const& receive, std::size_t size) {
    if (size != receive.rest.size())
      rank_state_.disagree(from_, receive.about.sequence,
                           "rank " + std::to_string(from_) + " sent " + std::to_string(size) + " bytes where rank " +
                               std::to_string(me_) + " expected " + std::to_string(receive.rest.size()) +
                               " bytes, tag " + std::to_string(static_cast<std::uint32_t>(receive.tag)));
  }

  void release(unsigned i) {
    receives_[i].busy = false;
    free_.push_back(i);
  }

  SegmentSlot& next_slot() const { return file_.slot(from_, me_, next_); }

  /// Takes every message that has a posted receive.
  bool match() {
    auto moved = false;
    changed_   = false;
    for (auto a = std::size_t{0}; a < arrived_.size();) {
      auto const& slot  = file_.slot(from_, me_, arrived_[a]);
      auto const theirs = AnnouncedOperations{slot.sequence, slot.fingerprint};
      auto const tag    = Tag{slot.tag};
      auto const w      = find_wanted(tag, theirs);
      if (w == wanted_.size()) {
        if (theirs.sequence != 0 && !rank_state_.is_ahead(theirs.sequence) &&
            rank_state_.announced(tag, from_) != theirs)
          rank_state_.mismatch(from_, tag, theirs, {theirs.sequence});  // ours of that number may have another tag
        ++a;
        continue;
      }
      auto const i = wanted_[w], at = arrived_[a];
      wanted_.erase(wanted_.begin() + static_cast<std::ptrdiff_t>(w));
      arrived_.erase(arrived_.begin() + static_cast<std::ptrdiff_t>(a));
      take(i, at);
      moved = true;
    }
    return moved;
  }

  /// Index in `wanted_` of the first posted receive with this tag; its size if there is none.
  std::size_t find_wanted(Tag tag, AnnouncedOperations theirs) {
    for (auto w = std::size_t{0}; w < wanted_.size(); ++w) {
      auto const& receive = receives_[wanted_[w]];
      if (receive.tag != tag) continue;
      if (receive.about != theirs) rank_state_.mismatch(from_, tag, theirs, receive.about);
      return w;
    }
    return wanted_.size();
  }

  /// Copies the bytes in the arena or in the slot; the rest of a large message passes the stage.
  void take(unsigned i, unsigned at) {
    auto& receive   = receives_[i];
    auto& slot      = file_.slot(from_, me_, at);
    auto const size = slot.size;
    expect_size(receive, size);
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
    streams_.push_back(i);
    lane_.granted.store(++granted_, std::memory_order_release);
    rank_state_.segment().ring(from_);
  }

  /// Copies one segment from the stage, if there is one; true if it did.
  bool drain() {
    if (streams_.empty() || lane_.filled.load(std::memory_order_acquire) == drained_) return false;
    auto const i  = streams_.front();
    auto& receive = receives_[i];
    copy(receive, {file_.stage(from_, me_, drained_), std::min(receive.rest.size(), file_.layout.segment())});
    lane_.drained.store(++drained_, std::memory_order_release);
    if (receive.rest.empty()) {
      streams_.erase(streams_.begin());
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
    auto* const kept   = receives_[i].into;
    release(i);
    freed_ ^= bit(receives_[i].slot);
    lane_.freed.store(freed_, std::memory_order_release);
    if (at_once) rank_state_.segment().ring_for_room(from_);  // the sender was done when it was sent
    else rank_state_.segment().ring(from_);
    if (kept == nullptr) --posted_;
    else if (kept->whole = true; kept->taker != no_receive) hand_over(*kept);
  }

  RankState& rank_state_;
  SegmentMemory const file_;
  Rank const me_, from_;
  SegmentChannel& lane_;
  unsigned next_          = 0;                           // the slot of the next message
  bool changed_           = false;                       // since the last match()
  std::uint64_t messages_ = 0;                           // that have arrived
  std::uint64_t freed_ = 0, drained_ = 0, granted_ = 0;  // as in `lane_`
  std::vector<Receive> receives_;
  std::vector<unsigned> free_;                        // of receives_
  std::vector<unsigned> arrived_, wanted_, streams_;  // slots; receives; receives in granted order
  std::size_t posted_ = 0, stored_bytes_ = 0;
  std::list<Stored> stored_;
};

}  // namespace chorale::shared_memory
