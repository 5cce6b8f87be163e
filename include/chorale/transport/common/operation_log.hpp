// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace chorale::detail {

/// The number of an operation, as ranks send it: for one of all ranks, its place in their order, from 1. For one of a
/// sub-group, the highest bit is set; then follow SubGroup::id and 31 bits of the place in the order of the group.
struct OperationNumber {
  static constexpr std::uint64_t of_group = std::uint64_t{1} << 63, places = std::uint64_t{1} << 31;

  static constexpr std::uint64_t at(std::uint32_t group, std::uint64_t place) {
    return group == 0 ? place : of_group | group * places | place % places;
  }
  static constexpr std::uint32_t group(std::uint64_t number) {
    return (number & of_group) == 0 ? 0 : static_cast<std::uint32_t>(number / places);
  }
  static constexpr std::uint64_t place(std::uint64_t number) {
    return (number & of_group) == 0 ? number : number % places;
  }
};

/// An operation and its OperationNumber; 0 stands for no announced operation.
///
/// history   a hash of the fingerprints of all operations of its group up to this one
/// order     among all operations of the rank, from 1
/// ranks     of its sub-group, while the log lives; null: all
struct LoggedOperation {
  std::uint64_t sequence         = 0;
  std::uint32_t fingerprint      = 0;
  std::uint32_t history          = 0;
  Operation operation            = {};
  std::uint64_t order            = 0;
  std::vector<Rank> const* ranks = nullptr;

  /// The ranks of its group, for a sentence: " in the group of ranks 1, 3". Empty for all ranks.
  std::string text_of_group() const {
    if (OperationNumber::group(sequence) == 0) return {};
    if (ranks == nullptr) return " in a group of other ranks";
    auto text = std::string{" in the group of ranks "};
    for (auto const rank : *ranks) text.append(rank == ranks->front() ? "" : ", ") += std::to_string(rank);
    return text;
  }
};

/// The last 1024 operations of each group of ranks that a rank has announced, found by number and by tag.
///
/// keeps   any number of different tags; nothing is allocated after the constructor, except for a new sub-group: 110
///         KiB. One thread calls add()
/// cost    add() and of() look at the tags that share a bucket: 1 in 1024 of those remembered; of() with a peer does so
///         for each group of that peer
class OperationLog {
 public:
  static constexpr std::uint64_t remembered = 1024;  // operations

  /// Place of the last operation of all ranks.
  std::uint64_t last() const { return all_->last(); }

  /// The last operation of any group. Sequence 0 for none.
  LoggedOperation const& newest() const { return *newest_; }

  /// The last operation of each sub-group.
  std::vector<LoggedOperation> last_of_groups() const {
    auto found = std::vector<LoggedOperation>{};
    for (auto const& group : groups_) found.push_back(group->at_place(group->last()));
    return found;
  }

  /// The last operation of the group with this SubGroup::id. Sequence 0 for none.
  LoggedOperation const& last_of(std::uint32_t id) const {
    auto const* const group = group_at(OperationNumber::at(id, 0));
    return group == nullptr ? none() : group->at_place(group->last());
  }

  void add(Operation const& operation) { newest_ = &all_->add(operation, ++orders_); }
  void add(Operation const& operation, SubGroup const& group) { newest_ = &group_of(group).add(operation, ++orders_); }

  /// The last operation of all ranks with this tag. Sequence 0 if none was announced, or 1024 others came after it.
  LoggedOperation const& of(Tag tag) const { return all_->of(tag); }

  /// The last operation with this tag that a peer takes part in.
  LoggedOperation const& of(Tag tag, Rank peer) const {
    auto const* found = &all_->of(tag);
    for (auto const& group : groups_) {
      if (!group->has(peer)) continue;
      if (auto const& other = group->of(tag); other.order > found->order) found = &other;
    }
    return *found;
  }

  /// The operation with this number. Sequence 0 if it was not announced, or is forgotten.
  LoggedOperation const& at(std::uint64_t sequence) const {
    auto const* const group = group_at(sequence);
    return group == nullptr ? none() : group->at(sequence);
  }

  /// True if the operation with this number is still to be announced here.
  bool is_ahead(std::uint64_t sequence) const {
    auto const* const group = group_at(sequence);
    return group == nullptr || group->ahead(sequence) > 0;
  }

 private:
  static LoggedOperation const& none() {
    static auto const nothing = LoggedOperation{};
    return nothing;
  }

  /// The operations of one group, which have numbers of their own.
  class Group {
   public:
    Group() : entries_(remembered) {}
    explicit Group(SubGroup const& group)
        : id_{group.id}, ranks_(group.ranks.begin(), group.ranks.end()), entries_(remembered) {
      for (auto const rank : ranks_) {
        auto const place = static_cast<std::size_t>(rank);
        if (place >= is_member_.size()) is_member_.resize(place + 1);
        is_member_[place] = true;
      }
    }
    Group(Group const&)            = delete;  // operations refer to its ranks
    Group& operator=(Group const&) = delete;

    std::uint32_t id() const { return id_; }
    std::uint64_t last() const { return last_; }
    bool has(Rank rank) const {
      auto const place = static_cast<std::size_t>(rank);
      return place < is_member_.size() && is_member_[place];
    }

    LoggedOperation const& add(Operation const& operation, std::uint64_t order) {
      auto& newest     = newest_[bucket(operation.tag)];
      auto const print = operation.fingerprint();
      auto const then  = at_place(last_).history;
      forget_tag(operation.tag, newest);
      ++last_;
      entry(last_) = {{OperationNumber::at(id_, last_), print, (then ^ print) * 16'777'619U, operation, order,
                       id_ == 0 ? nullptr : &ranks_},
                      newest};
      newest       = last_;
      return entry(last_).announced;
    }

    LoggedOperation const& of(Tag tag) const {
      for (auto i = newest_[bucket(tag)]; is_remembered(i); i = entry(i).older)
        if (entry(i).announced.operation.tag == tag) return entry(i).announced;
      return none();
    }

    LoggedOperation const& at_place(std::uint64_t place) const {
      return is_remembered(place) ? entry(place).announced : none();
    }
    LoggedOperation const& at(std::uint64_t sequence) const {
      return at_place(last_ + static_cast<std::uint64_t>(ahead(sequence)));
    }

    /// How many operations after the last one that number is; numbers of sub-groups begin again after 2^31.
    std::int64_t ahead(std::uint64_t sequence) const {
      auto const apart = static_cast<std::int64_t>(OperationNumber::place(sequence)) -
                         static_cast<std::int64_t>(id_ == 0 ? last_ : last_ % OperationNumber::places);
      constexpr auto turn = static_cast<std::int64_t>(OperationNumber::places);
      if (id_ == 0 || (apart < turn / 2 && apart >= -turn / 2)) return apart;
      return apart < 0 ? apart + turn : apart - turn;
    }

   private:
    /// older   the next operation in the same bucket, with another tag; it may be forgotten
    struct Entry {
      LoggedOperation announced;
      std::uint64_t older = 0;
    };

    static std::size_t bucket(Tag tag) { return static_cast<std::uint32_t>(tag) * 0x9E37'79B1U >> 22; }

    Entry& entry(std::uint64_t place) { return entries_[place % remembered]; }
    Entry const& entry(std::uint64_t place) const { return entries_[place % remembered]; }

    bool is_remembered(std::uint64_t place) const { return place != 0 && place <= last_ && last_ - place < remembered; }

    /// Removes the operation with this tag from the bucket, so that a bucket never has a tag twice.
    void forget_tag(Tag tag, std::uint64_t& newest) {
      for (auto* i = &newest; is_remembered(*i); i = &entry(*i).older)
        if (entry(*i).announced.operation.tag == tag) {
          *i = entry(*i).older;
          return;
        }
    }

    std::uint32_t id_ = 0;  // 0: all ranks
    std::vector<Rank> ranks_;
    std::vector<bool> is_member_;  // by rank
    std::uint64_t last_ = 0;
    std::vector<Entry> entries_;                // [place % remembered]
    std::array<std::uint64_t, 1024> newest_{};  // [bucket] a place
  };

  Group const* group_at(std::uint64_t sequence) const {
    auto const id = OperationNumber::group(sequence);
    if (id == 0) return all_.get();
    auto const found = std::ranges::find_if(groups_, [&](auto const& group) { return group->id() == id; });
    return found == groups_.end() ? nullptr : found->get();
  }

  Group& group_of(SubGroup const& wanted) {
    for (auto const& group : groups_)
      if (group->id() == wanted.id) return *group;
    return *groups_.emplace_back(std::make_unique<Group>(wanted));
  }

  std::uint64_t orders_       = 0;
  std::unique_ptr<Group> all_ = std::make_unique<Group>();
  std::vector<std::unique_ptr<Group>> groups_;  // few: a search is short
  LoggedOperation const* newest_ = &none();
};

}  // namespace chorale::detail
