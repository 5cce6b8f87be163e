// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/checkpoint_error.hpp>
#include <chorale/checkpoint/checkpoint_options.hpp>
#include <chorale/checkpoint/checkpoint_state.hpp>
#include <chorale/checkpoint/failpoints.hpp>
#include <chorale/checkpoint/reader.hpp>
#include <chorale/checkpoint/writer.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>

#include <gsl/util>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace chorale {

/// How a save ended: `begun` when a thread still writes it, `skipped` when the last one was still being written.
enum class Saved { yes, begun, skipped, failed };

/// The checkpoints of a run, for the one rank that writes all of them.
///
///   auto checkpoints = Checkpoints{{.folder = "run/mnist", .keep = 3}};
///   if (auto last = checkpoints.restore()) last->copy(Section::variables, slots);
///   checkpoints.save(state);
///
/// keeps   after the first save there is always a whole checkpoint, whenever the process dies
/// order   one save at a time, in the order of the calls. Not for several threads at once
template <FaultPoints Faults = NoFaults> class Checkpoints {
 public:
  explicit Checkpoints(CheckpointOptions options, Faults faults = {})
      : options_{std::move(options)}, faults_{std::move(faults)} {}
  Checkpoints(Checkpoints const&)            = delete;
  Checkpoints& operator=(Checkpoints const&) = delete;

  /// Waits for the save in progress. Its failure is only logged here.
  ~Checkpoints() {
    try {
      thread_.reset();
      if (trouble_) std::rethrow_exception(trouble_);
    } catch (std::exception const& error) {
      try {
        if (options_.log) options_.log(first_line(error));
      } catch (...) {  // the log has failed, too
      }
    }
  }

  /// The newest checkpoint that is whole, or nothing when the run is new. See newest_checkpoint().
  ///
  /// meanwhile   runs here while a thread reads; without it restore() reads
  /// throws      as newest_checkpoint(), and what `meanwhile` throws
  std::optional<Checkpoint> restore(std::function<void()> const& meanwhile = {}) {
    finish();
    if (!meanwhile) return newest_checkpoint(options_);
    auto found        = std::optional<Checkpoint>{};
    auto const forget = gsl::finally([this] { trouble_ = nullptr; });  // no save has failed
    begin([&] { found = newest_checkpoint(options_); });
    join_after(meanwhile);
    if (trouble_) std::rethrow_exception(trouble_);
    return found;
  }

  /// Writes a checkpoint of step `state.at.step`, or has a thread write it from a copy.
  ///
  /// meanwhile   with Saving::now, runs here while a thread writes; without it save() writes. Not called otherwise
  /// keeps   the memory of `state` is not read after save() returns
  /// cost    Saving::now: twice the disk's time for fsync and the bytes; Saving::behind: one copy in memory
  /// throws  CheckpointFailed with OnSaveError::stop; with Saving::behind from the next call of save() or finish().
  ///         BadArgument for tensors that make no file
  Saved save(CheckpointState const& state, std::function<void()> const& meanwhile = {}) {
    if (busy_ && options_.when_busy == WhenBusy::skip) {
      if (options_.log)
        options_.log("step " + std::to_string(state.at.step) +
                     " is not saved: the one before it is still being written.");
      return Saved::skipped;
    }
    finish();
    if (options_.saving == Saving::behind) {
      begin([this, &copy = snapshot_.take(state)] { write(copy); });
      return Saved::begun;
    }
    if (!meanwhile) {
      attempt([&] { write(state); });
    } else {
      begin([&] { write(state); });
      join_after(meanwhile);
    }
    return settle() ? Saved::yes : Saved::failed;
  }

  /// Waits for the save in progress, and reports its failure as save() does.
  ///
  /// throws  as save()
  void finish() {
    thread_.reset();
    settle();
  }

  /// Waits for the save in progress, at most `most`. True if there is none now, so that finish() would not wait.
  bool is_done_within(std::chrono::nanoseconds most) const {
    for (auto const until = std::chrono::steady_clock::now() + most; busy_;) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  }

  /// Number of saves that have failed.
  int failures() const { return failures_; }

  CheckpointOptions const& options() const { return options_; }

 private:
  /// Does the work, and keeps what it throws as the trouble.
  void attempt(std::function<void()> const& work) noexcept {
    try {
      work();
    } catch (...) { trouble_ = std::current_exception(); }
  }

  /// Has a thread do the work; what it refers to stays where it is until then.
  void begin(std::function<void()> work) {  // one type of work: a thread is compiled for each
    busy_              = true;
    auto const guarded = [this, work = std::move(work)] {
      attempt(work);
      busy_ = false;
    };
    try {
      thread_.emplace("checkpoint", guarded);
    } catch (Error const&) {  // no thread is left: then here
      guarded();
    }
  }

  void join_after(std::function<void()> const& meanwhile) {
    auto const join = gsl::finally([this] { thread_.reset(); });
    meanwhile();
  }

  void write(CheckpointState const& state) {
    auto const image = CheckpointImage{state};
    auto save        = CheckpointWriter<Faults>{options_, state.at.step, image.size(), faults_};
    save.write(image);
    save.commit(state.at);
  }

  /// Counts the failure of the last save, and throws or logs it; true if there was none.
  bool settle() {
    auto const trouble = std::exchange(trouble_, nullptr);
    if (!trouble) return true;
    ++failures_;
    try {
      std::rethrow_exception(trouble);
    } catch (CheckpointFailed const& error) {
      if (options_.on_save_error == OnSaveError::stop) throw;
      if (options_.log) options_.log(first_line(error) + " Training goes on.");
    }
    return false;
  }

  CheckpointOptions options_;
  [[no_unique_address]] Faults faults_;
  Snapshot snapshot_;
  std::exception_ptr trouble_;  // of the thread, read when it has ended; of a save
  int failures_           = 0;
  std::atomic<bool> busy_ = false;
  std::optional<NamedThread> thread_;  // the last member: it ends first
};

}  // namespace chorale
