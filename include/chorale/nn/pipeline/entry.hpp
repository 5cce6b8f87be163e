// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale {

/// Schedules of a pipeline: which stage computes what, and when.
///
///   section   a range of calls of a network. Stage s computes one, or, with chunks, one for each chunk
///   tick      the time that forward of a section takes, and backward by its inputs, and backward by its variables
namespace pipelines {

/// What a stage does with one micro-batch.
///
///   forward       1 tick
///   backward      gradients by inputs and by variables: 2 ticks. The stage before waits for both
///   by_inputs     gradients by inputs alone: 1 tick
///   by_weights    gradients by variables, some time after by_inputs: 1 tick
enum class Work : std::uint8_t { forward, backward, by_inputs, by_weights };

/// True for work that the stage before waits for.
constexpr bool gives_gradient(Work work) { return work == Work::backward || work == Work::by_inputs; }
/// True for the last work on a micro-batch: afterwards its activations are not needed any more.
constexpr bool is_last(Work work) { return work == Work::backward || work == Work::by_weights; }
constexpr int ticks_of(Work work) { return work == Work::backward ? 2 : 1; }

/// One entry of a schedule.
struct Entry {
  int tick        = 0;  // when it begins: no two of a stage alike
  int stage       = 0;
  Work work       = Work::forward;
  int micro_batch = 0;
  int chunk       = 0;

  friend constexpr bool operator==(Entry const&, Entry const&) = default;
};

/// The entries of all stages, in any order.
using Entries = std::vector<Entry>;

}  // namespace pipelines

/// A schedule of a pipeline, for any number of stages.
///
///   section(stage, chunk, stages)   a static function, needed with several chunks alone: which section a stage has.
///                     Without it chunk c of stage s is section c * stages + s
///   entries(stages)   each stage's entries in the order of ticks. Ticks that are closer than work can be done give
///                     the order alone: a Timetable has the earliest ticks
template <class S>
concept PipelineSchedule = requires(int stages) {
  { S::micro_batches } -> std::convertible_to<int>;  // of a step, at least 1
  { S::chunks } -> std::convertible_to<int>;         // sections of each stage, at least 1
  { S::entries(stages) } -> std::same_as<pipelines::Entries>;
};

namespace pipelines {

/// The section that a stage computes as one of its chunks.
template <class S> constexpr int section_of(int stage, int chunk, int stages) {
  if constexpr (requires { S::section(stage, chunk, stages); }) return S::section(stage, chunk, stages);
  else return chunk * stages + stage;
}
/// True for the stage that computes the last section: it has losses, metrics and outputs.
template <class S> constexpr bool has_outputs(int stage, int stages) {
  for (int chunk = 0; chunk < S::chunks; ++chunk)
    if (section_of<S>(stage, chunk, stages) == stages * S::chunks - 1) return true;
  return false;
}

/// A schedule that is a function: entries_of(stages) gives the entries for m micro-batches.
///
///   constexpr pipelines::Entries mine(int stages) { .. }
///   pipelined<pipelines::Table<mine, 4>>()
template <auto entries_of, int m, int n = 1> struct Table {
  static constexpr int micro_batches = m, chunks = n;
  static constexpr Entries entries(int stages) { return entries_of(stages); }
};

}  // namespace pipelines
}  // namespace chorale
