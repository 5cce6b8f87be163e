// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/pieces.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::detail {

/// Compares lines between all ranks of a job. Every process calls it.
///
/// live      a strategy whose replicas wait for one another
/// replicas  of this process
/// throws    Disagreement with Fault::model_mismatch if lines differ, the same on all ranks: it names the first rank
///           that differs from rank 0, and the first line in which it does, with both values
/// cost      one all_gather of 16 bytes for each rank; texts are sent only when they differ
template <class L>
void expect_same_lines(L& live, std::size_t replicas, std::vector<std::string> const& lines,
                       std::string const& advice = "the same model, data and options on every rank.") {
  struct Digest {
    std::uint64_t hash  = 0;
    std::uint64_t bytes = 0;

    bool operator==(Digest const&) const = default;
  };
  auto text = std::string{};
  for (auto const& line : lines) {
    for (char const c : line) text += c >= ' ' && c <= '~' ? c : '?';  // for logs and terminals
    text += '\n';
  }
  auto const mine    = Digest{Fnv1a<std::uint64_t>{}.add(text).value(), text.size()};
  auto const digests = live.gather(PerReplica{std::vector<Digest>(replicas, mine)});
  auto const other   = std::ranges::find_if(digests, [&](auto const& d) { return d != digests[0]; });
  if (other == digests.end()) return;

  auto const rank = static_cast<Rank>(other - digests.begin());
  auto texts      = std::array<PerReplica<std::vector<char>>, 2>{PerReplica<std::vector<char>>{replicas},
                                                                 PerReplica<std::vector<char>>{replicas}};
  live.run(
      [&](auto& replica, std::vector<char>& first, std::vector<char>& second) {
        auto const pass = [&](std::vector<char>& to, Rank root, std::uint64_t bytes) {
          to.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, piece_bytes)));  // more is not shown
          if (replica.id() == root) std::ranges::copy(std::string_view{text}.substr(0, to.size()), to.begin());
          replica.broadcast(Span<char>{to}, root);
        };
        pass(first, 0, digests[0].bytes);
        pass(second, rank, other->bytes);
      },
      texts[0], texts[1]);
  auto const lines_of = [](std::vector<char> const& from) {
    auto all = std::vector<std::string>{{}};
    for (char const c : from) {
      if (c == '\n') all.emplace_back();
      else all.back() += c;
    }
    all.pop_back();  // each line ends with a line break
    return all;
  };
  throw Disagreement{Fault::model_mismatch,
                     "rank " + std::to_string(rank) + ": " +
                         wire::first_difference(lines_of(texts[0][0]), lines_of(texts[1][0])) + " of rank 0.",
                     advice};
}

/// The description of a dataset in lines that ranks compare: its types, its number of elements, its source and stages.
template <Dataset Data> std::vector<std::string> data_lines(Data const& data) {
  auto lines    = std::vector<std::string>{};
  using Element = typename Data::element;
  if constexpr (requires {
                  typename decltype(Element::x)::value_type;
                  typename decltype(Element::y)::value_type;
                })
    lines.push_back("data element " + type_name<typename decltype(Element::x)::value_type>() + "," +
                    type_name<typename decltype(Element::y)::value_type>());
  auto const size = data.size();
  lines.push_back("data elements " + (size ? std::to_string(*size) : "unknown"));
  auto said = std::vector<std::string>{};
  data::describe(data, said);
  for (auto const& line : said) lines.push_back("data " + line);
  return lines;
}

}  // namespace chorale::detail
