// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/atomic_file.hpp>
#include <chorale/checkpoint/manager.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/trainer/callback_list.hpp>
#include <chorale/trainer/history.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale {

/// Marker file that `fit` writes next to its checkpoints when it finishes, so that a sidecar evaluator knows that no
/// further checkpoint will follow, even if a callback stopped training early.
///
/// keeps   written after the last checkpoint, and removed when a fit begins. Preempted and other exceptions leave none:
///         such a job continues when it is started again
struct CompletionMarker {
  std::uint64_t epochs = 0;  // FitOptions::epochs
  std::uint64_t step   = 0;  // updates

  static constexpr auto file_name = "ended";

  /// Reads the marker in a folder; empty if there is none, or if it cannot be read.
  static std::optional<CompletionMarker> in(std::filesystem::path const& folder) {
    auto const file = folder / file_name;
    auto code       = std::error_code{};
    auto from       = std::ifstream{};
    auto found      = CompletionMarker{};
    if (std::filesystem::is_regular_file(file, code)) from.open(file);  // a FIFO would wait
    if (from >> found.epochs >> found.step) return found;
    return {};
  }

  /// Writes the marker as a whole, or throws BadFile.
  void write_to(std::filesystem::path const& folder) const {
    auto const text = std::to_string(epochs) + " " + std::to_string(step) + "\n";
    auto file       = AtomicFile{folder / file_name};
    file.write(std::as_bytes(Span<char const>{text}));
    file.commit();
  }

  static void remove_from(std::filesystem::path const& folder) {
    auto none = std::error_code{};
    std::filesystem::remove(folder / file_name, none);
  }
};

/// Position of a fit: what a checkpoint has besides tensors, and what all ranks need to resume from a checkpoint.
struct TrainingPosition {
  std::int64_t update   = 0;  // steps so far
  std::int64_t epoch    = 0;  // that continues, or begins
  std::int64_t steps    = 0;  // of this epoch that are done
  std::int64_t pass     = 0;  // over the data, and batches of it that were
  std::int64_t batch    = 0;  // seen
  std::int64_t found    = 0;  // 1: there was a checkpoint
  std::int64_t servers  = 0;  // updates that were applied
  std::int64_t has_rate = 0;  // 1: a callback set the learning rate
  double rate           = 0;
  Totals totals{};                    // of this epoch so far
  double loss_scale             = 0;  // 0: losses are not scaled
  std::int64_t loss_scale_steps = 0;  // steps since it last changed

  /// True if a run can have its numbers: what another rank sends may be anything.
  bool is_one() const {
    constexpr auto most = std::int64_t{1} << 53, most_passes = std::int64_t{1} << 30;
    return std::ranges::all_of(std::array{update, epoch, steps, pass, batch, servers, loss_scale_steps},
                               [](std::int64_t n) { return n >= 0 && n <= most; }) &&
           epoch <= most_passes && pass <= most_passes;
  }

  /// All fields but `found`, as a checkpoint stores them; whole numbers are exact up to 2^53. The last two are left out
  /// unless losses are scaled.
  std::vector<double> numbers() const {
    auto all = std::vector<double>{};
    for (auto const n : {update, epoch, steps, pass, batch, servers, has_rate}) all.push_back(static_cast<double>(n));
    all.push_back(rate);
    all.insert(all.end(), totals.sums.begin(), totals.sums.end());
    if (loss_scale != 0) all.insert(all.end(), {loss_scale, static_cast<double>(loss_scale_steps)});
    return all;
  }
  static TrainingPosition of(Span<double const> numbers) {
    auto position = TrainingPosition{.found = 1};
    auto at       = numbers.begin();
    for (auto* field : {&position.update, &position.epoch, &position.steps, &position.pass, &position.batch,
                        &position.servers, &position.has_rate})
      *field = whole(*at++);
    position.rate = *at++;
    for (auto& sum : position.totals.sums) sum = *at++;
    if (at == numbers.end()) return position;
    position.loss_scale       = *at++;
    position.loss_scale_steps = whole(*at);
    return position;
  }

 private:
  static std::int64_t whole(double n) { return n >= 0 && n < 0x1p62 ? static_cast<std::int64_t>(n) : -1; }
};

/// Parts of all ranks' gradients that a Reduce has left out so far, and still has to send: (ranks, n). See TopK.
struct ErrorFeedback {
  std::size_t ranks = 0;
  std::vector<float> values{};

  /// The values of rank `rank` of `of_ranks`. If another number of ranks saved them, rank 0 gets the sum of all values:
  /// the sum over ranks is the same.
  std::vector<float> of(std::size_t rank, std::size_t of_ranks) const {
    auto const n = ranks == 0 ? 0 : values.size() / ranks;
    auto mine    = std::vector<float>(n);
    for (std::size_t from = 0; from < ranks; ++from) {
      if (ranks == of_ranks ? from != rank : rank != 0) continue;
      for (std::size_t i = 0; i < n; ++i) mine[i] += values[from * n + i];
    }
    return mine;
  }
};

/// Slots of a checkpoint for the variables of a replica.
inline std::vector<TensorSlot> slots_of(Variables const& variables) {
  auto all = std::vector<TensorSlot>{};
  for (std::size_t i = 0; i < variables.size(); ++i) {
    auto const v = variables[i];
    all.push_back({std::string{v.name}, Dtype::f32, {v.shape.begin(), v.shape.end()}, std::as_writable_bytes(v.value)});
  }
  return all;
}

/// The checkpoints of one fit, on the rank that writes them.
///
/// keeps   variables under their names, "NAME/slot0", .. for the optimizer's state: no trace of replicas, so another
///         strategy or another number of ranks can resume from it
/// throws  see Checkpoints
class RunCheckpoints {
 public:
  /// world   number of replicas; plan: hash of the model's plan
  RunCheckpoints(CheckpointOptions options, int world, std::string plan)
      : checkpoints_{std::move(options)}, world_{world}, plan_{std::move(plan)} {}

  /// Reads the newest checkpoint, for restore(). `meanwhile` runs here while a thread reads.
  void read(std::function<void()> const& meanwhile) { last_ = checkpoints_.restore(meanwhile); }

  /// Fills variables and slots from the checkpoint that was read, and returns its position.
  ///
  /// told      receives the state of callbacks and metrics, one after the other; one that the checkpoint does not have
  ///           keeps its own state
  /// owed      receives the error feedback, if the checkpoint has it
  TrainingPosition restore(Variables const& variables, Span<float> slots, std::vector<CallbackState> const& states,
                           Span<double> told, ErrorFeedback& owed) {
    for (auto at = told; auto const& state : states) {
      std::ranges::copy(state.numbers, at.begin());
      at = at.subspan(state.numbers.size());
    }
    auto const last = std::exchange(last_, {});
    if (!last) return {};
    auto numbers = TrainingPosition{}.numbers();
    last->copy(Section::variables, slots_of(variables));
    last->copy(Section::optimizer, optimizer_slots(variables, slots));
    auto wanted       = std::vector<TensorSlot>{slot(position, Span<double>{numbers})};
    auto unused       = std::list<std::vector<double>>{};  // of callbacks that this fit does not have
    auto const scaled = TrainingPosition{.loss_scale = 1}.numbers().size();
    for (auto const& tensor : (*last)[Section::state]) {
      if (tensor.name == position && tensor.bytes.size() == scaled * sizeof(double)) {
        numbers.resize(scaled);
        wanted[0] = slot(position, Span<double>{numbers});
      }
      if (tensor.name == residual && tensor.dtype == Dtype::f32 && tensor.shape.size() == 2) {
        owed = {static_cast<std::size_t>(tensor.shape[0]), std::vector<float>(tensor.bytes.size() / sizeof(float))};
        wanted.push_back({residual, Dtype::f32, tensor.shape, std::as_writable_bytes(Span<float>{owed.values})});
      }
      bool const told_by_name = tensor.name.starts_with("callback/") || tensor.name.starts_with("metric/");
      if (!told_by_name || tensor.dtype != Dtype::f64) continue;
      auto const n    = tensor.bytes.size() / sizeof(double);
      auto at         = told;
      auto const mine = std::ranges::find_if(states, [&](CallbackState const& state) {
        at = state.name == tensor.name ? at : at.subspan(state.numbers.size());
        return state.name == tensor.name;
      });
      bool const fits = mine != states.end() && mine->numbers.size() >= n;  // it may keep more now
      wanted.push_back(slot(std::string{tensor.name}, fits ? at.first(n) : Span<double>{unused.emplace_back(n)}));
    }
    last->copy(Section::state, wanted);
    return TrainingPosition::of(numbers);
  }

  /// Writes a checkpoint, or has a thread write it. `meanwhile` runs here while a thread writes with Saving::now.
  void save(Variables const& variables, Span<float> slots, TrainingPosition const& at,
            std::vector<CallbackState> const& states, ErrorFeedback& owed, std::function<void()> const& meanwhile) {
    auto numbers    = at.numbers();
    auto state      = CheckpointState{};
    state.at        = {.step  = static_cast<std::uint64_t>(at.update),
                       .epoch = static_cast<std::uint64_t>(at.epoch),
                       .batch = static_cast<std::uint64_t>(at.batch),
                       .world = static_cast<std::uint64_t>(world_),
                       .plan  = plan_};
    state.variables = tensors(slots_of(variables));
    state.optimizer = tensors(optimizer_slots(variables, slots));
    auto of_run     = std::vector<TensorSlot>{slot(position, Span<double>{numbers})};
    for (auto const& told : states) of_run.push_back(slot(told.name, told.numbers));
    if (owed.ranks != 0)
      of_run.push_back({residual,
                        Dtype::f32,
                        {owed.ranks, owed.values.size() / owed.ranks},
                        std::as_writable_bytes(Span<float>{owed.values})});
    state.state = tensors(of_run);
    checkpoints_.save(state, meanwhile);
  }

  /// Waits until nothing is being written. Returns how many saves have failed so far.
  int finish() {
    checkpoints_.finish();
    return checkpoints_.failures();
  }

  /// Waits for the save in progress, at most `most`. True if there is none now, so that finish() would not wait.
  bool is_done_within(std::chrono::nanoseconds most) const { return checkpoints_.is_done_within(most); }

  /// Writes the completion marker, for a sidecar evaluator that follows this fit.
  ///
  /// throws  BadFile with OnSaveError::stop
  void say_ended(CompletionMarker const& ended) {
    auto const& options = checkpoints_.options();
    auto none           = std::error_code{};
    if (!std::filesystem::exists(options.folder, none)) return;  // no checkpoint was saved
    try {
      ended.write_to(options.folder);
    } catch (BadFile const& error) {
      if (options.on_save_error == OnSaveError::stop) throw;
      if (options.log) options.log(first_line(error));
    }
  }
  /// Logs that a run which was started again has nothing left to train.
  ///
  /// epoch   epochs finished at the checkpoint; epochs: FitOptions::epochs
  void say_nothing_left(int epoch, int epochs) const {
    auto const& options = checkpoints_.options();
    auto const what     = "the run in " + options.folder.string() +
                      (epoch >= epochs ? " is complete: epoch " + std::to_string(epoch)
                                       : " was stopped by a callback after epoch " + std::to_string(epoch));
    if (options.log)
      options.log(what + " of " + std::to_string(epochs) +
                  ", so nothing is trained. Try: " + (epoch >= epochs ? "more epochs" : "fit without that callback") +
                  " to go on, or another folder to begin again.");
  }
  void say_goes_on() { CompletionMarker::remove_from(checkpoints_.options().folder); }

 private:
  static constexpr char const* position = "position";
  static constexpr char const* residual = "residual";

  static TensorSlot slot(std::string name, Span<double> numbers) {
    return {std::move(name), Dtype::f64, {numbers.size()}, std::as_writable_bytes(numbers)};
  }

  /// Slots of a checkpoint for the optimizer's state: slot k of all variables, then slot k + 1.
  static std::vector<TensorSlot> optimizer_slots(Variables const& variables, Span<float> slots) {
    auto const stride = variables.values.size() - plan::header - plan::trailer;
    auto all          = std::vector<TensorSlot>{};
    for (std::size_t k = 0; (k + 1) * stride <= slots.size() && stride != 0; ++k)
      for (std::size_t i = 0; i < variables.size(); ++i) {
        if (!variables.plan[i].spec.trained()) continue;  // its slots stay 0
        auto const v     = variables[i];
        auto const first = k * stride + variables.plan[i].slot_offset();
        all.push_back({std::string{v.name} + "/slot" + std::to_string(k),
                       Dtype::f32,
                       {v.shape.begin(), v.shape.end()},
                       std::as_writable_bytes(slots.subspan(first, v.value.size()))});
      }
    return all;
  }

  static std::vector<NamedTensor> tensors(std::vector<TensorSlot> const& slots) {
    auto all = std::vector<NamedTensor>{};
    for (auto const& slot : slots)
      all.push_back({.name = slot.name, .dtype = slot.dtype, .shape = slot.shape, .bytes = slot.bytes});
    return all;
  }

  Checkpoints<> checkpoints_;
  std::optional<Checkpoint> last_;
  int world_;
  std::string plan_;
};

}  // namespace chorale
