// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_error.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/error.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/strategy/runtime/same_lines.hpp>
#include <chorale/trainer/options.hpp>

#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

/// Lines that ranks compare when fit begins: the options that must be equal on all of them, then the description of the
/// dataset.
///
///   fit epochs 2
///   data element float,int
///   data elements 469
///   data batch 64 keep
template <Dataset Data> std::vector<std::string> fit_lines(Data const& data, FitOptions const& options) {
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
  for (auto& line : data_lines(data)) lines.push_back(std::move(line));
  return lines;
}

/// Calls work(), which every process of a job calls with its own dataset, options and callbacks. If these differ, ranks
/// call operations that do not match: the error then reports how far this process had come.
///
/// place   returns a part of a sentence: "in fit, at batch 20 of epoch 1"
/// throws  what work() throws; a Disagreement about operations with another text, which names the place
template <class Work, class Place> decltype(auto) with_same_data(Work&& work, Place&& place) {
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
