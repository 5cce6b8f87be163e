// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace chorale::detail {

/// Identifies the operation of a message or an exposure. Two ends with different labels are in different operations.
struct Label {
  std::uint64_t number      = 0;  // within its group, from 1; 0: none was announced
  std::uint32_t fingerprint = 0;  // of the operation
  std::uint32_t group       = 0;  // SubGroup::id; 0: all ranks

  static constexpr std::uint64_t forgotten = ~std::uint64_t{0};  // too long ago to be known

  bool agrees_with(Label const& other) const {
    return number == forgotten || other.number == forgotten ||
           (number == other.number && fingerprint == other.fingerprint && group == other.group);
  }
};

/// An operation as a rank has announced it.
struct Known {
  Label label;
  Operation operation;
};

/// Operations that a rank has announced. Its thread writes, and labels its messages; other ranks of the process read.
///
/// remembered   operations; older ones are neither compared nor reported
/// keeps        nothing is allocated, except for a new sub-group
template <std::uint64_t remembered> class SharedOperationLog {
 public:
  /// Adds an operation, and returns its label. For the rank's own thread, like label_of().
  ///
  /// part   the ranks that take part; null: all
  Label add(Operation const& operation, SubGroup const* part) {
    auto* const group   = part == nullptr ? nullptr : &group_of(*part);
    auto const number   = group == nullptr ? ++last_ : ++group->last;
    auto const position = count() + 1;
    auto& own           = own_[position % remembered];
    auto& newest        = newest_[hash(operation.tag)];
    own    = {{number, operation.fingerprint(), part == nullptr ? 0 : part->id}, operation.tag, newest, group};
    newest = position;
    shared_[position % remembered].write(position, {own.label, operation});
    count_.store(position, std::memory_order_release);
    return own.label;
  }

  /// Returns the label of the operation that a message belongs to: the last one announced with this tag that `peer`
  /// takes part in.
  ///
  /// peer    the rank that sends or receives the message
  Label label_of(Tag tag, Rank peer) const {
    auto const last = count();
    if (last == 0) return {};
    for (auto at = newest_[hash(tag)]; at != 0 && last - at < remembered; at = own_[at % remembered].before) {
      auto const& one = own_[at % remembered];
      if (one.tag != tag) continue;
      if (one.group == nullptr || std::ranges::binary_search(one.group->sorted, peer)) return one.label;
    }
    return last < remembered ? Label{} : Label{.number = Label::forgotten};
  }

  /// The ranks of a sub-group, for a sentence: " in the group of ranks 1, 3". Empty for all ranks.
  std::string text_of_group(std::uint32_t id) const {
    if (id == 0) return {};
    auto const found = groups_.find(id);
    if (found == groups_.end()) return " in a group of other ranks";
    auto const& ranks = found->second.ranks;
    auto text         = std::string{" in the group of ranks "};
    for (auto const rank : ranks) text.append(rank == ranks.front() ? "" : ", ") += std::to_string(rank);
    return text;
  }

  // For any thread.

  /// Number of operations announced so far.
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }

  /// The operation at that position in the order of all, from 1; empty if it is forgotten.
  std::optional<Known> at(std::uint64_t position) const { return shared_[position % remembered].read(position); }

  /// The last operation, if there is one.
  std::optional<Known> last() const { return count() == 0 ? std::nullopt : at(count()); }

  /// The operation with the group and number of this label, if it is remembered.
  std::optional<Known> find(Label const& wanted) const {
    auto const last = count();
    for (auto at = last; at != 0 && last - at < remembered; --at) {
      auto const known = this->at(at);
      if (known && known->label.number == wanted.number && known->label.group == wanted.group) return known;
    }
    return std::nullopt;
  }

 private:
  struct Group {
    std::vector<Rank> ranks, sorted;
    std::uint64_t last = 0;  // number
  };

  struct Own {
    Label label{};
    Tag tag{};
    std::uint64_t before = 0;  // position of the previous one with this hash
    Group const* group   = nullptr;
  };

  /// A Known that may be read while it is written: read() is then empty.
  class Shared {
   public:
    void write(std::uint64_t position, Known const& known) {
      auto words = Words{};
      std::memcpy(words.data(), &known, sizeof known);
      version_.store(2 * position - 1, std::memory_order_relaxed);
      for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
      version_.store(2 * position, std::memory_order_release);
    }
    std::optional<Known> read(std::uint64_t position) const {
      if (version_.load(std::memory_order_acquire) != 2 * position) return std::nullopt;
      auto words = Words{};
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (version_.load(std::memory_order_relaxed) != 2 * position) return std::nullopt;
      auto known = Known{};
      std::memcpy(static_cast<void*>(&known), words.data(), sizeof known);
      return known;
    }

   private:
    static_assert(std::is_trivially_copyable_v<Known> && sizeof(Known) % sizeof(std::uint64_t) == 0);
    using Words = std::array<std::uint64_t, sizeof(Known) / sizeof(std::uint64_t)>;

    std::atomic<std::uint64_t> version_{0};  // odd while it is written
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> words_{};
  };

  static std::size_t hash(Tag tag) { return static_cast<std::uint32_t>(tag) % remembered; }

  Group& group_of(SubGroup const& part) {
    auto& group = groups_[part.id];
    if (group.ranks.empty()) {
      group.ranks.assign(part.ranks.begin(), part.ranks.end());
      group.sorted = group.ranks;
      std::ranges::sort(group.sorted);
    }
    return group;
  }

  std::uint64_t last_ = 0;                           // number of the last operation of all ranks
  std::array<std::uint64_t, remembered> newest_{};   // [hash of a tag]: a position; 0: none
  std::array<Own, remembered> own_{};                // [position % remembered]
  std::unordered_map<std::uint32_t, Group> groups_;  // [SubGroup::id]
  alignas(64) std::atomic<std::uint64_t> count_{0};
  std::array<Shared, remembered> shared_{};
};

/// Returns the operation that a rank is in, as a part of a sentence.
///
/// log, witness   of that rank, and of the rank that reports it
/// raw            a message whose operation was not announced
template <std::uint64_t N>
std::string text_of(Rank rank, Label const& label, SharedOperationLog<N> const& log,
                    SharedOperationLog<N> const& witness, Operation const& raw) {
  auto const who = "rank " + std::to_string(rank);
  if (label.number == 0) return who + " is in no announced operation: " + raw.text();
  auto const known = log.find(label);
  return "operation " + std::to_string(label.number) + " of " + who + witness.text_of_group(label.group) + " is " +
         (known ? known->operation.text() : "one that it has forgotten");
}

}  // namespace chorale::detail
