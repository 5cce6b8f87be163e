// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_error.hpp>
#include <chorale/checkpoint/checkpoint_name.hpp>
#include <chorale/checkpoint/checkpoint_options.hpp>
#include <chorale/checkpoint/directory.hpp>
#include <chorale/checkpoint/reader.hpp>
#include <chorale/checkpoint/verified_file.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/run_checkpoints.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace chorale {

/// The checkpoints that an evaluator reads, and the conditions on which it ends.
struct EvaluatorOptions {
  CheckpointOptions checkpoints{};                                         // of the job that trains
  int epochs                            = 1;                               // FitOptions::epochs of that job
  std::chrono::milliseconds every       = std::chrono::milliseconds{500};  // time between two reads of the folder
  std::atomic<bool> const* asked_to_end = nullptr;                         // true: ends; see EndOnSignal
};

/// The scores of one checkpoint.
struct CheckpointScores {
  std::uint64_t step  = 0;  // updates
  std::uint64_t epoch = 0;  // epochs that were finished
  Scores scores{};
};

namespace detail {

/// Number of epochs that were finished at the checkpoint of this step; 0 while it cannot be read.
inline std::uint64_t epochs_at(std::filesystem::path const& folder, std::uint64_t step) {
  try {
    return read_manifest(Directory{Directory{folder}, checkpoint_name(step)}).epoch;
  } catch (BadFile const&) {
    return 0;  // being replaced: the caller retries
  } catch (std::system_error const&) { return 0; }
}

/// A checkpoint by its step and time. A checkpoint that is saved again for the same step compares unequal.
struct Seen {
  std::uint64_t step = 0;
  std::filesystem::file_time_type saved{};

  /// All checkpoints of a folder, the newest one first.
  static std::vector<Seen> in(std::filesystem::path const& folder) {
    auto all  = std::vector<Seen>{};
    auto gone = std::error_code{};
    for (auto const step : checkpoint_steps(folder))
      all.push_back({step, std::filesystem::last_write_time(folder / checkpoint_name(step), gone)});
    return all;
  }
  friend bool operator==(Seen const&, Seen const&) = default;
};

/// Returns the options with a log that reports the damage of each checkpoint only once.
inline CheckpointOptions say_once(CheckpointOptions options) {
  if (!options.log) return options;
  options.log = [log = options.log, before = std::set<std::string>{}](std::string const& line) mutable {
    if (before.insert(line.substr(0, line.find(" Passed over: "))).second) log(line);
  };
  return options;
}

/// The newest checkpoint that is whole; empty if there is none, or if all are damaged, which is logged.
///
/// throws  NoValidCheckpoint with OnDamage::stop
inline std::optional<Checkpoint> newest_whole(CheckpointOptions const& options) {
  try {
    return newest_checkpoint(options);
  } catch (NoValidCheckpoint const& error) {
    if (options.on_damage == OnDamage::stop) throw;
    if (options.log) options.log(first_line(error) + " The next one is waited for.");
    return {};
  }
}

}  // namespace detail

/// Evaluates each new checkpoint of a job that trains elsewhere, from its folder alone: the work of an evaluator task.
///
/// trainer   of the same model, in this process alone, under any strategy; its variables are replaced
/// said      called with each result as soon as it is available
/// keeps     checkpoints that are saved faster than they can be evaluated are skipped, the last one never. A damaged
///           one is logged, and the next one is awaited. Ends after the job's last epoch, or when its fit has finished
///           before that, by EarlyStopping for example; waits for a job that was killed or Preempted, or that has no
///           checkpoint
/// throws    BadFile when a checkpoint is not of this model; NoValidCheckpoint when the job has ended and all of its
///           checkpoints are damaged, and with OnDamage::stop as soon as the newest one is damaged
/// source    the evaluator of tf.estimator.train_and_evaluate; tf.keras.utils.SidecarEvaluator
template <class Trainer, Dataset Data>
std::vector<CheckpointScores> evaluate_checkpoints(Trainer& trainer, Data const& test, EvaluatorOptions const& options,
                                                   std::function<void(CheckpointScores const&)> const& said = {}) {
  CHORALE_EXPECTS(trainer.live().is_all_local(),
                  "an evaluator is one process, but this trainer has replicas in others");
  CHORALE_EXPECTS(options.epochs >= 0 && options.every.count() >= 0,
                  "EvaluatorOptions::epochs and EvaluatorOptions::every must be 0 or more, got " +
                      std::to_string(options.epochs) + " and " + std::to_string(options.every.count()) + " ms");
  auto const from   = detail::say_once(options.checkpoints);
  auto const epochs = static_cast<std::uint64_t>(options.epochs);
  auto all          = std::vector<CheckpointScores>{};
  auto looked_at    = std::vector<detail::Seen>{};
  auto const take   = [&](std::optional<Checkpoint> const& found) {
    if (!found || (!all.empty() && found->manifest().step <= all.back().step)) return;
    if constexpr (requires { trainer.set_variables(Span<float const>{}); }) trainer.load(*found);
    else  // with servers; none of them serves here
      for (auto& copy : trainer.copies()) found->copy(Section::variables, slots_of(copy.net.variables()));
    all.push_back({found->manifest().step, found->manifest().epoch, trainer.evaluate(test)});
    if (said) said(all.back());
  };
  while (options.asked_to_end == nullptr || !*options.asked_to_end) {
    auto const ended = CompletionMarker::in(from.folder);  // first, so that no checkpoint is missed
    auto const there = detail::Seen::in(from.folder);
    if (there != looked_at) {
      looked_at = there;
      take(detail::newest_whole(from));
      continue;
    }
    auto const step    = all.empty() ? 0 : all.back().step;
    auto const is_last = !there.empty() && there.front().step == step;
    if (is_last)  // it is saved again at the end of its epoch
      all.back().epoch = std::max(all.back().epoch, detail::epochs_at(from.folder, step));
    if (is_last && all.back().epoch >= epochs) break;
    if (!there.empty() && ended && ended->epochs >= epochs && ended->step >= step) {
      if (!is_last) take(all.empty() ? newest_checkpoint(from) : detail::newest_whole(from));  // may be whole by now
      break;
    }
    std::this_thread::sleep_for(options.every);
  }
  return all;
}

}  // namespace chorale
