// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_log.hpp>
#include <chorale/transport/operation.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace chorale::shared_memory {

/// The file that the ranks of a SharedMemoryTransport share; each process maps it at its own address.
///
///   SegmentPrefix            the job, and the process of every rank: read before anything is mapped
///   SegmentRootCause         the root cause of a failure
///   SegmentMember   [P]      the state of each rank, its exposures and its announced operations
///   channels        [P * P]  messages from one rank to another: a SegmentChannel, 64 slots, a stage
///   arenas          [P]      memory that the ranks use in place of private memory, each followed by its copies()
///   the plan of the first rank, as text
///
/// keeps   every number in it is checked before it is used as an index or a size: a faulty process cannot crash another
inline constexpr std::uint64_t segment_magic        = 0x316d6873726f6863;  // "chorshm1"
inline constexpr std::uint32_t segment_wire_version = 4;
inline constexpr int max_segment_ranks              = 256;
inline constexpr unsigned segment_slots             = 64;  // messages per channel; half of a rank's windows
inline constexpr std::size_t refusal_bytes          = 1'024;

/// A text in the file, cut to n - 1 characters, and read through printable().
template <std::size_t n> struct SegmentText {
  std::array<char, n> characters;

  void set(std::string_view text) {
    auto const length = std::min(text.size(), n - 1);
    std::copy_n(text.data(), length, characters.data());
    characters[length] = '\0';
  }
  std::string text() const {
    return printable({characters.begin(), std::find(characters.begin(), characters.end() - 1, '\0')});
  }
};

/// The process of one rank. Its start distinguishes it from a process that had the same number before.
struct Process {
  std::int32_t process  = 0;  // 0: none has joined yet
  std::uint64_t started = 0;  // ticks since the host started
};

/// Header of the file, written only under its lock. Versions never change the first four, nor where `processes` is.
struct SegmentPrefix {
  std::uint64_t magic                              = 0;  // 0 until the file is whole
  std::uint32_t version                            = 0;
  std::int32_t world                               = 0;  // ranks
  std::uint64_t process_ids                        = 0;  // the namespace of the process numbers
  std::array<Process, max_segment_ranks> processes = {};
  std::uint32_t incarnation                        = 0;
  std::uint32_t apart                              = 0;  // 1: FailureScope::peer
  std::uint64_t arena = 0, ring = 0, plan = 0;           // bytes: per rank, per channel, in all
};

/// A failure as one rank reports it. Written once, before an atomic value publishes it.
struct SegmentReport {
  std::int32_t fault, rank;
  std::uint64_t sequence, step;
  SegmentText<64> host;
  SegmentText<256> operation;
  SegmentText<768> reason;

  void set(Loss const& loss) {
    fault    = static_cast<std::int32_t>(loss.fault);
    rank     = loss.rank;
    sequence = loss.sequence;
    step     = loss.step;
    host.set(loss.host);
    operation.set(loss.operation);
    reason.set(loss.reason);
  }
  Loss loss() const {
    return {static_cast<Fault>(fault), rank, host.text(), operation.text(), sequence, step, reason.text()};
  }
};

/// With FailureScope::peer: why one rank has lost another. Written once, by one process.
struct SegmentPeerLoss {
  std::atomic<std::uint32_t> state;  // 0, 1 while it is written, 2
  SegmentReport report;

  bool is_over() const { return state.load(std::memory_order_acquire) == 2; }

  /// Sets the loss; only the first call of the process counts.
  void set(Loss const& loss) {
    auto expected = std::uint32_t{0};
    if (!state.compare_exchange_strong(expected, 1)) return;
    report.set(loss);
    state.store(2, std::memory_order_release);
  }
};

/// An announced operation, for other ranks to compare, and to describe in their errors.
///
/// mark   32 bits made of the sequence, then the fingerprint; written last
struct SegmentOperation {
  std::atomic<std::uint64_t> mark;
  std::uint64_t sequence, count;
  std::uint32_t tag, line, arguments;
  std::int32_t root;
  std::uint8_t collective, op, element;
  SegmentText<53> file;

  static constexpr std::uint64_t mark_of(std::uint64_t number, std::uint32_t fingerprint) {
    return (number ^ number >> 32) << 32 | fingerprint;
  }

  void set(std::uint64_t number, std::uint32_t fingerprint, Operation const& from) {
    sequence   = number;
    count      = from.count;
    tag        = static_cast<std::uint32_t>(from.tag);
    line       = from.where.line;
    collective = static_cast<std::uint8_t>(from.collective);
    op         = static_cast<std::uint8_t>(from.op);
    element    = static_cast<std::uint8_t>(from.element);
    root       = from.root;
    arguments  = from.arguments;
    file.set(from.where.file);
    mark.store(mark_of(number, fingerprint), std::memory_order_release);
  }
  std::string text() const {
    if (root < no_root) return "an operation that does not exist";
    if (collective > static_cast<std::uint8_t>(Collective::barrier) || op > static_cast<std::uint8_t>(Op::product) ||
        element > static_cast<std::uint8_t>(Element::u64))
      return "an operation that does not exist";
    auto const path = file.text();
    return Operation{static_cast<Collective>(collective),
                     static_cast<Op>(op),
                     static_cast<Element>(element),
                     count,
                     Tag{tag},
                     {path, line},
                     root,
                     arguments}
        .text();
  }
};

/// One tag that a rank exposes: turn 2n - 1 during the n-th exposure in this window, 2n once the rank has left it.
struct alignas(64) SegmentWindow {
  std::atomic<std::uint64_t> turn;
  std::uint64_t sequence, place, size;  // place: offset in the file
  std::uint32_t tag, fingerprint;
};

/// How often a rank has called `meet()`, and in which operation.
///
/// keeps   about[t % 2] belongs to call t. It is written again for call t + 2, when all ranks have made call t + 1, and
///         so have read it
struct SegmentMeetings {
  struct About {
    std::uint64_t sequence;
    std::uint32_t fingerprint, tag;
  };

  alignas(64) std::atomic<std::uint64_t> turn;
  std::array<About, 2> about;
};

/// What one rank publishes in the segment, and what other ranks write for it.
struct SegmentMember {
  static constexpr std::size_t remembered = 128;  // operations; more than messages of a channel
  static constexpr std::size_t of_groups  = 512;  // operations of sub-groups

  alignas(64) std::atomic<std::uint64_t> sequence;  // these six: written by the rank's thread
  std::atomic<std::uint64_t> step, moved;           // moved: steps of progress so far
  std::atomic<std::int32_t> waits_for;              // 1 + the rank; 0 while it does not wait
  std::atomic<std::uint32_t> gone;                  // the rank has left in good order
  std::atomic<std::uint32_t> history;               // of all operations that it has announced
  alignas(64) std::atomic<std::uint64_t> beats;     // written by the failure detector
  alignas(64) std::atomic<std::uint32_t> wakeup;    // wake-ups by other ranks, counted
  std::atomic<std::uint32_t> asleep, listens;       // `wakeup` counts if either is not 0
  alignas(64) std::atomic<std::uint32_t> holds;     // the rank touches memory of other ranks
  SegmentMeetings meetings;
  std::array<SegmentWindow, 2 * segment_slots> windows;  // by tag; by operation
  std::array<SegmentOperation, remembered + of_groups> operations;
  std::array<SegmentReport, 2> reports;  // by the rank's thread; by the failure detector

  /// Returns the place for the operation with this number. Operations of sub-groups share places.
  SegmentOperation& operation(std::uint64_t number) {
    using Number = detail::OperationNumber;
    if (Number::group(number) == 0) return operations[number % remembered];
    return operations[remembered + (Number::group(number) + Number::place(number)) % of_groups];
  }
};

/// The root cause that ends the job, and the reason for which ranks were refused.
struct SegmentRootCause {
  alignas(64) std::atomic<std::uint32_t> report;    // 0: no failure; 1 + 2 * rank + witness
  alignas(64) std::atomic<std::uint32_t> complete;  // 1: all ranks have joined; 2: all were refused
  std::atomic<std::uint32_t> refused;               // number of the last refusal; its reason:
  SegmentText<refusal_bytes> refusal;
};

/// One message: the sender fills a slot, the receiver frees it. The bytes that fit are stored after this header.
struct alignas(64) SegmentSlot {
  std::atomic<std::uint64_t> turn;       // n: this is the n-th message of the channel
  std::uint64_t sequence, size, place;   // place: in the sender's arena, or 0
  std::uint32_t tag, fingerprint, next;  // next: the slot of message n + 1
};

/// State of the messages from one rank to another. Each cache line has one writer.
struct SegmentChannel {
  alignas(64) std::atomic<std::uint64_t> freed;    // receiver: bit i flips when it frees slot i
  std::atomic<std::uint64_t> drained, granted;     // segments; messages that may pass the stage
  std::atomic<std::uint64_t> kept;                 // bytes stored, if it stores no more; else 0
  std::array<std::uint8_t, segment_slots> grants;  // message k passes from slot grants[k % 64]
  alignas(64) std::atomic<std::uint64_t> filled;   // sender: segments
  SegmentPeerLoss by_receiver, by_sender;          // the receiver lost the sender, by reporter
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::is_trivially_copyable_v<SegmentPrefix> && std::is_standard_layout_v<SegmentMember>);

/// Offsets in the file, computed from four numbers on which all ranks agree.
struct SegmentLayout {
  static constexpr std::size_t page = 4'096, segments = 8;  // segments: of one channel's stage
  static constexpr std::size_t copies = 256 << 10;          // bytes of a rank, for SharedMemoryEndpoint::copies()

  int world;
  std::size_t ring, arena, plan;  // bytes: per channel, per rank, in all

  static constexpr std::size_t pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

  constexpr std::size_t ranks() const { return static_cast<std::size_t>(world); }
  constexpr std::size_t inside() const { return ring / 2 / segment_slots; }  // bytes of a message in its slot
  constexpr std::size_t segment() const { return ring / 2 / segments; }
  constexpr std::size_t slot() const { return sizeof(SegmentSlot) + inside(); }
  constexpr std::size_t stage() const { return sizeof(SegmentChannel) + segment_slots * slot(); }  // within a channel
  constexpr std::size_t lane() const { return pages(stage() + segments * segment()); }

  constexpr std::size_t root_cause() const { return pages(sizeof(SegmentPrefix)); }
  constexpr std::size_t members() const { return root_cause() + pages(sizeof(SegmentRootCause)); }
  constexpr std::size_t lanes() const { return members() + pages(ranks() * sizeof(SegmentMember)); }
  constexpr std::size_t arenas() const { return lanes() + ranks() * ranks() * lane(); }
  constexpr std::size_t plan_text() const { return arenas() + ranks() * (pages(arena) + copies); }
  constexpr std::size_t bytes() const { return plan_text() + pages(plan); }

  constexpr std::size_t lane(Rank from, Rank to) const {
    return lanes() + (static_cast<std::size_t>(from) * ranks() + static_cast<std::size_t>(to)) * lane();
  }
  constexpr std::size_t arena_of(Rank rank) const {
    return arenas() + static_cast<std::size_t>(rank) * (pages(arena) + copies);
  }
};

/// The file in this process's memory. Does not own the mapping.
struct SegmentMemory {
  std::byte* base      = nullptr;
  SegmentLayout layout = {};

  SegmentRootCause& root_cause() const { return at<SegmentRootCause>(layout.root_cause()); }
  SegmentMember& member(Rank rank) const {
    return at<SegmentMember>(layout.members() + static_cast<std::size_t>(rank) * sizeof(SegmentMember));
  }
  SegmentWindow& window(Rank rank, std::size_t i) const { return member(rank).windows[i]; }
  SegmentChannel& lane(Rank from, Rank to) const { return at<SegmentChannel>(layout.lane(from, to)); }
  SegmentSlot& slot(Rank from, Rank to, std::size_t i) const {
    return at<SegmentSlot>(layout.lane(from, to) + sizeof(SegmentChannel) + i % segment_slots * layout.slot());
  }
  static std::byte* inside(SegmentSlot& slot) { return reinterpret_cast<std::byte*>(&slot + 1); }
  std::byte* stage(Rank from, Rank to, std::size_t i) const {
    return base + layout.lane(from, to) + layout.stage() + i % SegmentLayout::segments * layout.segment();
  }
  Bytes arena(Rank rank) const { return {base + layout.arena_of(rank), layout.arena}; }
  Bytes copies(Rank rank) const {
    return {base + layout.arena_of(rank) + SegmentLayout::pages(layout.arena), SegmentLayout::copies};
  }

  /// Returns bytes of a rank's arena that another process named. Throws Error when they are not in it.
  Bytes in_arena(Rank rank, std::uint64_t place, std::uint64_t size) const {
    auto const begin = layout.arena_of(rank);
    CHORALE_ENSURES(place >= begin && size <= layout.arena && place - begin <= layout.arena - size,
                    "rank " + std::to_string(rank) + " names " + std::to_string(size) + " bytes outside of its arena");
    return {base + place, size};
  }

 private:
  template <class T> T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(base + offset);  // zeros are a valid first value of every part
  }
};

}  // namespace chorale::shared_memory
