// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_options.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/variable.hpp>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace chorale {

/// Output of fit: progress, as a line that moves on a terminal and one line per epoch elsewhere, or nothing.
enum class Show { progress, nothing };

/// How the rows of a batch are divided among replicas: evenly, or, from the second epoch on, by their measured speed.
enum class Deal { evenly, by_speed };

/// Options of Trainer::fit.
struct FitOptions {
  int epochs              = 1;  // the last one, as in Keras: 12 means 0 to 11
  int initial_epoch       = 0;
  Show show               = Show::progress;
  NonFinite on_non_finite = NonFinite::stop;  // a NaN or an infinity
  int compare_every       = 100;              // steps between comparisons of replicas, and
                                              // at checkpoints and at the end; 0: never
  bool compare_data       = true;             // compares data of processes: descriptions
                                              // as fit begins, see data::describe, and
                                              // in each step how many rows there were
  int accumulate          = 1;                // batches whose gradients make one update
  Deal deal               = Deal::evenly;
  CheckpointOptions checkpoints{};                  // without a folder there are none
  std::size_t checkpoint_every          = 0;        // updates; 0: after each epoch
  std::atomic<bool> const* asked_to_end = nullptr;  // true: saves, throws Preempted: EndOnSignal
  std::size_t memory_budget             = 0;        // bytes that a replica may take, known
                                                    // before its first step; 0: any
  std::size_t task_memory_budget        = 0;        // of all replicas of this process together,
                                                    // as several tasks may share a host; 0: any
  std::size_t summary_every             = 0;        // updates between Scalars; 0: once per epoch
  std::size_t steps_per_epoch           = 0;        // 0: a pass; else an epoch begins where the
                                                    // last one stopped, pass after pass
  bool floor                            = false;    // measures this machine for some ms, and tells
};  // speed in percent of it: see StepFloor

/// Refuses negative numbers, and an initial_epoch after the last epoch.
///
/// throws  BadArgument with the first of them
inline void check_counts(FitOptions const& options) {
  auto const at_least_0 = [](std::string const& name, int value, std::string const& what_to_try) {
    if (value < 0)
      throw BadArgument{"FitOptions::" + name + " is " + std::to_string(value) + ", and must be 0 or more.",
                        what_to_try};
  };
  at_least_0("epochs", options.epochs, "the number of the last epoch, counted from 1.");
  at_least_0("initial_epoch", options.initial_epoch, "the number of epochs that were trained before.");
  at_least_0("compare_every", options.compare_every, "the steps from one comparison to the next, or 0 for none.");
  if (options.initial_epoch > options.epochs)
    throw BadArgument{"FitOptions::initial_epoch is " + std::to_string(options.initial_epoch) + ", and epochs is " +
                          std::to_string(options.epochs) + ": no epoch is between them.",
                      "epochs above initial_epoch: it is the number of the last epoch, as in Keras."};
}

/// Result of predict: one row for each row of the data, in its order. With a ragged output, a row has as many
/// numbers as its own length gives, and `width` is the width of a row with one position.
struct Predictions {
  std::vector<float> values;  // (rows, width)
  std::size_t width = 0;
  std::vector<std::size_t> ends{};  // of each row in values, if they differ

  std::size_t rows() const { return !ends.empty() ? ends.size() : width == 0 ? 0 : values.size() / width; }
  Span<float const> operator[](std::size_t row) const& {
    if (ends.empty()) return Span<float const>{values}.subspan(row * width, width);
    auto const begin = row == 0 ? 0 : ends[row - 1];
    return Span<float const>{values}.subspan(begin, ends[row] - begin);
  }
  Span<float const> operator[](std::size_t) const&& = delete;  // it would be gone: keep the predictions
};

}  // namespace chorale
