// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_error.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/trainer/options.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
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
void expect_same_lines(L& live, std::size_t replicas, std::vector<std::string> const& lines) {
  struct Digest {
    std::uint64_t hash  = 0;
    std::uint64_t bytes = 0;

    bool operator==(Digest const&) const = default;
  };
  auto text = std::string{};
  for (auto const& line : lines) {
    for (char const c : line) text += c >= ' ' && c <= '~' ? c : '?';      // for logs and terminals
    text += '\n';
  }
  auto const mine    = Digest{Fnv1a<std::uint64_t>{}.add(text).value(), text.size()};
  auto const digests = live.gather(PerReplica{std::vector<Digest>(replicas, mine)});
  auto const other   = std::ranges::find_if(digests, [&](auto const& d) { return d != digests[0]; });
  if (other == digests.end()) return;

  auto const rank = static_cast<Rank>(other - digests.begin());
  auto texts      = std::array<PerReplica<std::vector<char>>, 2>{PerReplica<std::vector<char>>{replicas},
                                                                PerReplica<std::vector<char>>{replicas}};
  live.run([&](auto& replica, std::vector<char>& first, std::vector<char>& second) {
    auto const pass = [&](std::vector<char>& to, Rank root, std::uint64_t bytes) {
      to.resize(static_cast<std::size_t>(bytes));
      if (replica.id() == root) std::ranges::copy(text, to.begin());
      replica.broadcast(Span<char>{to}, root);
    };
    pass(first, 0, digests[0].bytes);
    pass(second, rank, other->bytes);
  }, texts[0], texts[1]);
  auto const lines_of = [](std::vector<char> const& from) {
    auto all = std::vector<std::string>{{}};
    for (char const c : from) {
      if (c == '\n') all.emplace_back();
      else all.back() += c;
    }
    all.pop_back();                                                        // each line ends with a line break
    return all;
  };
  throw Disagreement{Fault::model_mismatch,
                     "rank " + std::to_string(rank) + ": " +
                         wire::first_difference(lines_of(texts[0][0]), lines_of(texts[1][0])) + " of rank 0.",
                     "the same model, data and options on every rank."};
}

/// Lines that ranks compare when fit begins: the options that must be equal on all of them, then the description of the
/// dataset.
///
///   fit epochs 2
///   data element float,int
///   data elements 469
///   data batch 64 keep
template <Dataset Data>
std::vector<std::string> fit_lines(Data const& data, FitOptions const& options) {
  auto lines     = std::vector<std::string>{};
  auto const fit = [&](std::string const& name, auto const& value) {
    lines.push_back("fit " + name + " " + word_of(value));
  };
  fit("epochs", options.epochs);
  fit("initial_epoch", options.initial_epoch);
  fit("steps_per_epoch", options.steps_per_epoch);
  fit("accumulate", options.accumulate);
  fit("deal", options.deal == Deal::evenly ? "evenly" : "by_speed");
  fit("on_non_finite", options.on_non_finite == NonFinite::stop   ? "stop"
                       : options.on_non_finite == NonFinite::skip ? "skip"
                                                                  : "allow");
  fit("compare_every", options.compare_every);
  fit("checkpoints", !options.checkpoints.folder.empty());
  fit("checkpoint_every", options.checkpoint_every);
  if (!options.compare_data) return lines;

  using Element = typename Data::element;
  if constexpr (requires { typename decltype(Element::x)::value_type; typename decltype(Element::y)::value_type; })
    lines.push_back("data element " + type_name<typename decltype(Element::x)::value_type>() + "," +
                    type_name<typename decltype(Element::y)::value_type>());
  auto const size = data.size();
  lines.push_back("data elements " + (size ? std::to_string(*size) : "unknown"));
  auto said = std::vector<std::string>{};
  data::describe(data, said);
  for (auto const& line : said) lines.push_back("data " + line);
  return lines;
}

/// Calls work(), which every process of a job calls with its own dataset, options and callbacks. If these differ, ranks
/// call operations that do not match: the error then reports how far this process had come.
///
/// place   returns a part of a sentence: "in fit, at batch 20 of epoch 1"
/// throws  what work() throws; a Disagreement about operations with another text, which names the place
template <class Work, class Place>
decltype(auto) with_same_data(Work&& work, Place&& place) {
  try {
    return work();
  } catch (Disagreement const& error) {
    if (error.fault() != Fault::collective_mismatch) throw;
    throw Disagreement{error.fault(),
                       "the processes of this job have different data, options or callbacks: this one was " + place() +
                           " when their operations did not fit together (" + first_line(error) + ")",
                       "a dataset with as many batches of as many rows in every process, and the same FitOptions and "
                       "callbacks."};
  }
}

}  // namespace chorale::detail
