// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/trainer/options.hpp>

#include <string>
#include <vector>

namespace chorale::detail {

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

}  // namespace chorale::detail
