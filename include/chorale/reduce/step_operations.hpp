// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/collective.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// One operation of a step in which several ranks take part.
///
/// what       it moves: "gradients", "variables", "squares and faults"
/// elements   on each rank; 0: as many as a step has
/// ranks      that take part: all of a group, or those along an axis of a mesh
/// by         the algorithm
/// ends       where the chunk of each rank ends, if chunks are uneven
/// traffic    what one rank sends for it; null: not known before the step
struct StepOperation {
  std::string what;
  Collective kind      = Collective::all_reduce;
  Element element      = Element::f32;
  std::size_t elements = 0;
  int ranks            = 1;
  std::string by{};
  std::string along{};
  std::vector<std::size_t> ends{};
  Sent (*traffic)(StepOperation const&, Rank) = nullptr;

  std::size_t bytes() const { return elements * size_of(element); }

  /// A line: "all_reduce float[65536] of 4 ranks by RingAllReduce: gradients".
  std::string text() const {
    auto line = std::string{name(kind)} + " " + std::string{name(element)};
    line += elements == 0 ? "[..]" : "[" + std::to_string(elements) + "]";
    line.append(" of ") += std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
    if (!along.empty()) line += " along " + along;
    if (!by.empty()) line.append(" by ") += by;
    return line + ": " + what;
  }
  friend bool operator==(StepOperation const& a, StepOperation const& b) {
    return a.text() == b.text() && a.ends == b.ends;
  }
};

/// The operations of a step, in the order in which ranks call them, as a value: what ranks must have alike before they
/// train together, and what a step will send.
///
/// is_known   false if the strategy does not say what a step sends; the list is then empty
struct StepOperations {
  std::vector<StepOperation> all{};
  bool is_known = true;

  /// Appends an operation, unless one rank alone would take part in it.
  void add(StepOperation operation) {
    if (operation.ranks > 1) all.push_back(std::move(operation));
  }

  /// Returns the lines that ranks compare when they connect; equal operations in a row are one line. At most 65: the
  /// last one is then the hash of all.
  ///
  ///   operation 0: all_reduce float[10480] of 4 ranks by RingAllReduce: gradients
  ///   operation 1: all_reduce float[65536] of 4 ranks by RingAllReduce: gradients, 7 times
  std::vector<std::string> lines() const {
    auto made = std::vector<std::string>{};
    for (std::size_t i = 0, next = 0; i < all.size() && made.size() < most_lines; i = next) {
      for (next = i + 1; next < all.size() && all[next] == all[i];) ++next;
      made.push_back("operation " + std::to_string(i) + ": " + all[i].text());
      if (next - i > 1) made.back().append(", ") += std::to_string(next - i) + " times";
      if (made.size() == most_lines && next < all.size())
        made.push_back("operations " + std::to_string(all.size()) + " hash " + std::to_string(hash()));
    }
    return made;
  }

  /// The lines as a text, each with its end.
  std::string text() const {
    if (!is_known) return "the operations of a step are not known before it\n";
    if (all.empty()) return "no operation: one rank computes alone\n";
    auto made = std::string{};
    for (auto const& line : lines()) made += line + "\n";
    return made;
  }

  std::uint64_t hash() const {
    auto made = Fnv1a<std::uint64_t>{};
    for (auto const& one : all) {
      made.add(one.text());
      for (auto const end : one.ends) made.add(end);
    }
    return made.value();
  }

  /// Messages and bytes that one rank sends in a step; none if that depends on the step, or on how an algorithm chooses.
  std::optional<Sent> sent(Rank rank) const {
    auto sum = Sent{};
    if (!is_known) return {};
    for (auto const& one : all) {
      if (one.traffic == nullptr || one.elements == 0) return {};
      auto const more = one.traffic(one, rank);
      sum.messages += more.messages;
      sum.bytes += more.bytes;
    }
    return sum;
  }

  /// Bytes of all operations of a kind, on one rank.
  std::size_t bytes(Collective kind) const {
    auto sum = std::size_t{0};
    for (auto const& one : all) sum += one.kind == kind ? one.bytes() : 0;
    return sum;
  }

  friend bool operator==(StepOperations const& a, StepOperations const& b) {
    return a.is_known == b.is_known && a.all == b.all;
  }

 private:
  static constexpr std::size_t most_lines = 64;  // a plan has room for 64 KiB of lines
};

}  // namespace chorale
