// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::detail {

/// An operation and its number in the order of announcement, from 1; 0 stands for no announced operation.
///
/// history   a hash of the fingerprints of all operations up to this one
struct LoggedOperation {
  std::uint64_t sequence    = 0;
  std::uint32_t fingerprint = 0;
  std::uint32_t history     = 0;
  Operation operation       = {};
};

/// The last 1024 operations that a rank has announced, found by number and by tag.
///
/// keeps   any number of different tags; nothing is allocated after the constructor. One thread calls add()
/// cost    add() and of() look at the tags that share a bucket: 1 in 1024 of those remembered
class OperationLog {
 public:
  static constexpr std::uint64_t remembered = 1024;                        // operations

  OperationLog() : entries_(remembered) {}

  std::uint64_t last() const { return last_; }

  void add(Operation const& operation) {
    auto& newest     = newest_[bucket(operation.tag)];
    auto const print = operation.fingerprint();
    auto const then  = at(last_).history;
    forget_tag(operation.tag, newest);
    ++last_;
    entry(last_) = {{last_, print, (then ^ print) * 16'777'619U, operation}, newest};
    newest       = last_;
  }

  /// The last operation with this tag. Sequence 0 if none was announced, or 1024 others came after it.
  LoggedOperation const& of(Tag tag) const {
    for (auto i = newest_[bucket(tag)]; is_remembered(i); i = entry(i).older)
      if (entry(i).announced.operation.tag == tag) return entry(i).announced;
    return none_;
  }

  /// The operation with this number. Sequence 0 if it was not announced, or is forgotten.
  LoggedOperation const& at(std::uint64_t sequence) const {
    return is_remembered(sequence) ? entry(sequence).announced : none_;
  }

 private:
  /// older   the next operation in the same bucket, with another tag; it may be forgotten
  struct Entry {
    LoggedOperation announced;
    std::uint64_t older = 0;
  };

  static std::size_t bucket(Tag tag) { return static_cast<std::uint32_t>(tag) * 0x9E37'79B1U >> 22; }

  Entry&       entry(std::uint64_t sequence) { return entries_[sequence % remembered]; }
  Entry const& entry(std::uint64_t sequence) const { return entries_[sequence % remembered]; }

  bool is_remembered(std::uint64_t sequence) const {
    return sequence != 0 && sequence <= last_ && last_ - sequence < remembered;
  }

  /// Removes the operation with this tag from the bucket, so that a bucket never has a tag twice.
  void forget_tag(Tag tag, std::uint64_t& newest) {
    for (auto* i = &newest; is_remembered(*i); i = &entry(*i).older)
      if (entry(*i).announced.operation.tag == tag) {
        *i = entry(*i).older;
        return;
      }
  }

  std::uint64_t last_ = 0;
  LoggedOperation none_;
  std::vector<Entry> entries_;                                             // [sequence % remembered]
  std::array<std::uint64_t, 1024> newest_{};                               // [bucket] a sequence
};

}  // namespace chorale::detail
