// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/pipeline/entry.hpp>
#include <chorale/nn/pipeline/timetable.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::pipelines {

/// Messages between the stages of a pipeline, in the middle of a step.
///
/// keeps   memory of a message is not touched between its start and the end of wait()
/// throws  PeerLost when another stage is gone
class Messages {
 public:
  virtual ~Messages() = default;

  /// Begin to send, and to receive. The two ends of a message use the same number; messages with one number between two
  /// stages arrive in the order sent. Return what wait() takes.
  virtual std::size_t send(int stage, std::uint32_t number, ConstBytes out) = 0;
  virtual std::size_t receive(int stage, std::uint32_t number, Bytes in)    = 0;
  /// Returns when a message is over. All others go on meanwhile, so that no order of waits makes stages wait for ever,
  /// if what they do can be done in that order.
  virtual void wait(std::size_t message)                                    = 0;
  virtual void wait_all()                                                   = 0;
  /// Lets all messages go on as far as they can without waiting: to be called while a stage computes, as a message that
  /// is longer than what a transport holds moves only when both ends call this or wait.
  virtual void go_on()                                                      = 0;
};

/// Where the gradients of each micro-batch go, instead of being added up in the order of the schedule.
class MicroBatchSums {
 public:
  virtual ~MicroBatchSums() = default;

  /// Memory for all gradients of the stage by a micro-batch: zeros when it is first asked for.
  virtual Span<float> of(int micro_batch) = 0;
  /// The gradients of a micro-batch are complete.
  virtual void complete(int micro_batch)  = 0;
};

/// What one stage does in a step, when the program runs.
struct StageSchedule {
  int stage = 0, stages = 1, micro_batches = 1, chunks = 1;
  Entries entries;                      // of this stage, in order
  std::vector<int> sections;            // of each chunk
  std::vector<int> stage_of, chunk_of;  // of each section

  /// True if the stage computes a section.
  bool owns(int section) const { return stage_of[static_cast<std::size_t>(section)] == stage; }
  /// True if gradients by inputs and by variables are apart.
  bool is_apart() const {
    return std::ranges::any_of(entries, [](Entry const& e) { return e.work == Work::by_inputs; });
  }
};

/// The part of a schedule that a stage does. The schedule was checked.
template <PipelineSchedule S> StageSchedule schedule_of(int stage, int stages) {
  auto made           = StageSchedule{stage, stages, S::micro_batches, S::chunks, {}, {}, {}, {}};
  auto const executed = detail::Execution<S>{stages};
  for (auto const& e : executed.entries())
    if (e.stage == stage) made.entries.push_back(e);
  made.stage_of.resize(static_cast<std::size_t>(stages * S::chunks));
  made.chunk_of = made.stage_of;
  for (int s = 0; s < stages; ++s)
    for (int c = 0; c < S::chunks; ++c) {
      auto const x     = static_cast<std::size_t>(section_of<S>(s, c, stages));
      made.stage_of[x] = s;
      made.chunk_of[x] = c;
      if (s == stage) made.sections.push_back(static_cast<int>(x));
    }
  return made;
}

}  // namespace chorale::pipelines
