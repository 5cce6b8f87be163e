// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale {

/// How two elements with the same index, of two ranks, are combined.
enum class Op : std::uint8_t { sum, min, max, product };

/// Type of one element of a message. The values are part of the wire format.
enum class Element : std::uint8_t { byte, f32, f64, bf16, f16, i32, i64, u32, u64 };

constexpr std::size_t size_of(Element e) {
  return std::array<std::size_t, 9>{1, 4, 8, 2, 2, 4, 8, 4, 8}[static_cast<std::size_t>(e)];
}

/// Kind of a collective operation. The values are part of the wire format.
enum class Collective : std::uint8_t {
  message, all_reduce, reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier
};

constexpr std::string_view name(Op op) {
  return std::array<std::string_view, 4>{"sum", "min", "max", "product"}[static_cast<std::size_t>(op)];
}
constexpr std::string_view name(Element e) {
  return std::array<std::string_view, 9>{"byte", "float", "double", "bf16", "fp16", "int32", "int64", "uint32",
                                         "uint64"}[static_cast<std::size_t>(e)];
}
constexpr std::string_view name(Collective c) {
  return std::array<std::string_view, 8>{"message", "all_reduce", "reduce", "reduce_scatter", "all_gather",
                                         "broadcast", "all_to_all", "barrier"}[static_cast<std::size_t>(c)];
}

/// The line of the program that called an operation. Ranks that call from different lines are taken to disagree.
struct CallSite {
  std::string_view file = {};
  std::uint32_t line    = 0;

  static constexpr CallSite here(char const* path = __builtin_FILE(), std::uint32_t at = __builtin_LINE()) {
    auto const name = std::string_view{path};                              // clang 14 has no std::source_location
    return {name.substr(name.rfind('/') + 1), at};                         // the folder may differ between machines
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
  Collective collective = Collective::message;
  Op op                 = Op::sum;
  Element element       = Element::byte;
  std::uint64_t count   = 0;
  Tag tag               = {};
  CallSite where        = {};
  Rank root             = no_root;
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
      s += " (" + std::string{name(op)} + ")";
    s += " of " + std::to_string(count) + " " + std::string{name(element)};
    if (root != no_root) s += (collective == Collective::broadcast ? " from rank " : " to rank ") + std::to_string(root);
    s += ", tag " + std::to_string(static_cast<std::uint32_t>(tag));
    if (!where.file.empty()) s += ", at " + std::string{where.file} + ":" + std::to_string(where.line);
    return s;
  }
};

/// Messages and bytes that one rank has sent.
struct Sent {
  int         messages = 0;                                           // with access in place: times all ranks synchronized
  std::size_t bytes    = 0;                                           // with access in place: moved to or from peers

  friend constexpr bool operator==(Sent const&, Sent const&) = default;
};

}  // namespace chorale
