// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/collective.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale {

/// The line of the program that called an operation. Ranks that call from different lines are taken to disagree.
struct CallSite {
  std::string_view file = {};
  std::uint32_t line    = 0;

  static constexpr CallSite here(char const* path = __builtin_FILE(), std::uint32_t at = __builtin_LINE()) {
    auto const name = std::string_view{path};       // clang 14 has no std::source_location
    return {name.substr(name.rfind('/') + 1), at};  // the folder may differ between machines
  }
};

/// Root of an operation that has none.
inline constexpr Rank no_root = -1;

/// Fingerprint of numbers that all ranks of an operation must pass alike, such as the counts of an all_gather.
/// FNV-1a over 8 bytes of each; never 0, which stands for no such numbers.
///
/// numbers  a range of integers
constexpr std::uint32_t fingerprint_of(auto const& numbers) {
  auto hash = Fnv1a<std::uint32_t>{};
  for (auto const number : numbers) hash.add(static_cast<std::uint64_t>(number));
  return hash.value() == 0 ? 1 : hash.value();
}

/// One collective operation, which all of its ranks must describe alike. Its fingerprint is sent with every message.
///
///   {Collective::all_reduce, Op::sum, Element::f32, 400, Tag{7}, CallSite::here()}
///
/// count      elements; 0 where ranks may differ
/// root       the rank that sends a broadcast or receives a reduce, numbered as in the operation's group; else no_root
/// arguments  fingerprint_of() everything else that must agree, e.g. counts, or the ranks of a sub-group; 0 for nothing
struct Operation {
  Collective collective   = Collective::message;
  Op op                   = Op::sum;
  Element element         = Element::byte;
  std::uint64_t count     = 0;
  Tag tag                 = {};
  CallSite where          = {};
  Rank root               = no_root;
  std::uint32_t arguments = 0;

  /// FNV-1a over all of the above.
  constexpr std::uint32_t fingerprint() const {
    return Fnv1a<std::uint32_t>{}
        .add(static_cast<std::uint64_t>(collective), 1)
        .add(static_cast<std::uint64_t>(op), 1)
        .add(static_cast<std::uint64_t>(element), 1)
        .add(count)
        .add(static_cast<std::uint32_t>(tag), 4)
        .add(where.file)
        .add(where.line, 4)
        .add(static_cast<std::uint32_t>(root), 4)
        .add(arguments, 4)
        .value();
  }

  /// Returns a text such as "all_reduce (sum) of 400 float, tag 7, at train.cpp:41".
  std::string text() const {
    auto s = std::string{name(collective)};
    if (collective == Collective::all_reduce || collective == Collective::reduce ||
        collective == Collective::reduce_scatter)
      s.append(" (") += std::string{name(op)} + ")";
    s.append(" of ") += std::to_string(count) + " " + std::string{name(element)};
    if (root != no_root)
      s += (collective == Collective::broadcast ? " from rank " : " to rank ") + std::to_string(root);
    s += ", tag " + std::to_string(static_cast<std::uint32_t>(tag));
    if (!where.file.empty()) s += ", at " + std::string{where.file} + ":" + std::to_string(where.line);
    return s;
  }
};

}  // namespace chorale
