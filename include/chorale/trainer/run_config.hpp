// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/trainer/options.hpp>
#include <chorale/trainer/run_folder.hpp>

#include <cstddef>
#include <filesystem>

namespace chorale {

/// One configuration of a run: its folder, and how often it writes to it.
///
///   auto const run = RunConfig{.folder = "run/first", .save_checkpoints_steps = 1000, .save_summary_steps = 100};
///   trainer.fit(train, run.options(), validate_on(test), run.records());
///
/// folder                   gets checkpoints/, curves and traces; a run that is started again there continues
/// save_checkpoints_steps   updates between checkpoints; 0: one after each epoch
/// save_summary_steps       updates between points of the curves; 0: one after each epoch
/// source  tf.estimator.RunConfig; docs/48-observe.md maps its members, and Estimator's
struct RunConfig {
  std::filesystem::path folder{};
  int epochs                         = 1;
  std::size_t steps_per_epoch        = 0;  // 0: a pass over the data
  std::size_t save_checkpoints_steps = 0;
  int keep_checkpoint_max            = 5;
  std::size_t save_summary_steps     = 100;
  RunFolderOptions written{};

  /// The options of fit; others may be set in the result.
  FitOptions options() const {
    auto made               = FitOptions{};
    made.epochs             = epochs;
    made.steps_per_epoch    = steps_per_epoch;
    made.checkpoint_every   = save_checkpoints_steps;
    made.summary_every      = save_summary_steps;
    made.checkpoints.folder = folder / "checkpoints";
    made.checkpoints.keep   = keep_checkpoint_max;
    return made;
  }

  /// The callback that writes curves and traces.
  RunFolder records() const { return RunFolder{folder, written}; }
};

}  // namespace chorale
