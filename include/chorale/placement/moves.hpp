// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace chorale::placement {

/// Elements of flat arrays that a rank has, or shall have. Which array a number names is the caller's choice.
struct Held {
  int array = 0;
  Range range;

  friend constexpr bool operator==(Held const&, Held const&) = default;
};

/// What a rank gets from another one, or from itself, when the layout of flat arrays changes.
struct HeldMove {
  int array = 0;
  Range range;
  int from = 0, to = 0;  // a rank of the old layout, one of the new

  friend constexpr bool operator==(HeldMove const&, HeldMove const&) = default;
};

namespace detail {

/// Elements of the part of `want` that begins at `at`, up to which every rank has either all or nothing.
constexpr std::size_t next_change(std::vector<std::vector<Held>> const& before, int array, std::size_t at,
                                  std::size_t end) {
  for (auto const& rank : before)
    for (auto const& held : rank) {
      if (held.array != array) continue;
      for (auto const edge : {held.range.begin, held.range.end})
        if (edge > at) end = std::min(end, edge);
    }
  return end;
}

}  // namespace detail

/// The fewest copies that bring flat arrays from one layout to another.
///
/// before   what each rank has; after: what each rank shall have, any number of ranks
/// at       for each rank of `before` the rank of `after` in whose memory it is, -1 if that memory is gone
/// keeps    a rank takes what is in its memory already from there, and everything else once, in equal parts from all
///          ranks that have it. Moves of one rank are in the order of its `after`: the same list on every rank
/// cost     constant for each move, and the number of ranges for each of them
/// throws   BadArgument when elements are nowhere: their rank's memory is gone
inline std::vector<HeldMove> moves(std::vector<std::vector<Held>> const& before,
                                   std::vector<std::vector<Held>> const& after, Span<int const> at) {
  CHORALE_EXPECTS(at.size() == before.size(), "a layout of " + std::to_string(before.size()) +
                                                  " ranks, but places of " + std::to_string(at.size()));
  auto all     = std::vector<HeldMove>{};
  auto holders = std::vector<int>{};
  for (std::size_t to = 0; to < after.size(); ++to)
    for (auto const& want : after[to])
      for (auto begin = want.range.begin; begin < want.range.end;) {
        auto const end = detail::next_change(before, want.array, begin, want.range.end);
        auto here      = -1;  // a rank in the memory of `to`
        holders.clear();
        for (std::size_t from = 0; from < before.size(); ++from) {
          auto const has = [&](Held const& held) {
            return held.array == want.array && held.range.begin <= begin && end <= held.range.end;
          };
          if (at[from] < 0 || std::ranges::none_of(before[from], has)) continue;
          holders.push_back(static_cast<int>(from));
          if (at[from] == static_cast<int>(to) && here < 0) here = static_cast<int>(from);
        }
        if (here >= 0) holders = {here};
        CHORALE_EXPECTS(!holders.empty(), "elements " + std::to_string(begin) + " to " + std::to_string(end) +
                                              " of array " + std::to_string(want.array) +
                                              " are in the memory of no "
                                              "rank that goes on. Keep its process, or resume from a checkpoint");
        auto const parts = static_cast<int>(holders.size());
        for (int part = 0; part < parts; ++part) {
          auto const own = share(end - begin, part, parts);
          if (own.size() == 0) continue;
          all.push_back({want.array,
                         {begin + own.begin, begin + own.end},
                         holders[static_cast<std::size_t>(part)],
                         static_cast<int>(to)});
        }
        begin = end;
      }
  return all;
}

}  // namespace chorale::placement
