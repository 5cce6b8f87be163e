// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace chorale::detail {

/// An operation and its place in the order of all, from 1; 0 is no announced operation.
struct Announced {
  std::uint64_t sequence    = 0;
  std::uint32_t fingerprint = 0;
  Operation operation       = {};
};

/// What the working thread of a rank has announced, for the messages that follow. Its own: not shared.
class Announcements {
 public:
  static constexpr std::uint64_t remembered = 256;                         // operations, to compare late messages with

  std::uint64_t last() const { return last_; }

  void add(Operation const& operation) {
    auto const announced = Announced{++last_, operation.fingerprint(), operation};
    by_tag_[slot(operation.tag)]       = announced;
    by_sequence_[last_ % remembered]   = announced;
  }

  /// The last one with this tag. Sequence 0 where there is none, or where an equal tag modulo 64 came after it.
  Announced const& of(Tag tag) const {
    auto const& found = by_tag_[slot(tag)];
    return found.sequence != 0 && found.operation.tag == tag ? found : none_;
  }

  /// Sequence 0 where it was not announced, or is forgotten.
  Announced const& at(std::uint64_t sequence) const {
    auto const& found = by_sequence_[sequence % remembered];
    return found.sequence == sequence ? found : none_;
  }

 private:
  static std::size_t slot(Tag tag) { return static_cast<std::uint32_t>(tag) % 64; }

  std::uint64_t last_ = 0;
  Announced none_;
  std::array<Announced, 64> by_tag_;
  std::array<Announced, remembered> by_sequence_;
};

}  // namespace chorale::detail
