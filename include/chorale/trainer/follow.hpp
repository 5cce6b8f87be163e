// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_name.hpp>
#include <chorale/checkpoint/open_folder.hpp>
#include <chorale/checkpoint/reader.hpp>
#include <chorale/checkpoint/verified_file.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/saved_run.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace chorale {

/// What an evaluator looks at, and until when.
struct FollowOptions {
  CheckpointOptions checkpoints{};                                         // of the job that trains
  int epochs = 1;                                                          // of that job: ends when the last is evaluated
  std::chrono::milliseconds every = std::chrono::milliseconds{500};        // between two looks at the folder
  std::atomic<bool> const* asked_to_end = nullptr;                         // true: ends; see EndOnSignal
};

/// The scores of one checkpoint.
struct Followed {
  std::uint64_t step  = 0;                                                 // updates
  std::uint64_t epoch = 0;                                                 // epochs that were finished
  Scores scores{};
};

namespace detail {

/// Epochs that were finished, as the checkpoint of this step says; 0 while it cannot be read.
inline std::int64_t epochs_at(std::filesystem::path const& folder, std::uint64_t step) {
  try {
    return static_cast<std::int64_t>(read_manifest(OpenFolder{OpenFolder{folder}, checkpoint_name(step)}).epoch);
  } catch (BadFile const&) {
    return 0;                                                              // being replaced: asked again soon
  } catch (std::system_error const&) {
    return 0;
  }
}

}  // namespace detail

/// Evaluates each new checkpoint of a job that trains elsewhere, from its folder alone: what an evaluator task does.
///
/// trainer   of the same model, in this process alone; its variables are replaced
/// said      called with each result as it is there
/// keeps     checkpoints that come faster than they can be evaluated are skipped, the last one never
/// throws    BadFile when a checkpoint is not of this model; NoValidCheckpoint
/// source    the evaluator of tf.estimator.train_and_evaluate; tf.keras.utils.SidecarEvaluator
template <class Trainer, Dataset Data>
std::vector<Followed> follow(Trainer& trainer, Data const& test, FollowOptions const& options,
                             std::function<void(Followed const&)> const& said = {}) {
  CHORALE_EXPECTS(trainer.live().is_all_local(), "an evaluator is one process, but this trainer has replicas in others");
  auto all       = std::vector<Followed>{};
  auto const end = [&] { return options.asked_to_end != nullptr && *options.asked_to_end; };
  while (!end()) {
    auto const steps = checkpoint_steps(options.checkpoints.folder);       // the newest one first
    if (steps.empty() || (!all.empty() && steps.front() <= all.back().step)) {
      std::this_thread::sleep_for(options.every);
      if (steps.empty() || detail::epochs_at(options.checkpoints.folder, all.back().step) < options.epochs) continue;
      all.back().epoch = static_cast<std::uint64_t>(options.epochs);       // the same update, saved again at the end
      break;
    }
    auto const found = newest_checkpoint(options.checkpoints);
    if (!found || (!all.empty() && found->manifest().step <= all.back().step)) {
      std::this_thread::sleep_for(options.every);                          // the newest one is damaged
      continue;
    }
    for (auto& copy : trainer.copies()) found->copy(Section::variables, slots_of(copy.net.variables()));
    all.push_back({found->manifest().step, found->manifest().epoch, trainer.evaluate(test)});
    if (said) said(all.back());
    if (all.back().epoch >= static_cast<std::uint64_t>(options.epochs)) break;
  }
  return all;
}

}  // namespace chorale
