// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/pipeline/entry.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale::pipelines {

/// The kinds of error in a schedule of a pipeline.
enum class Flaw : std::uint8_t {
  none,
  no_such,   // a stage, a micro-batch or a chunk that does not exist
  sections,  // two chunks are one section, or a section is on no stage
  together,  // two entries of a stage in one tick
  twice,     // a micro-batch goes through a section twice
  missing,   // a micro-batch does not go through a section, or has no gradients there
  order,     // backward before forward, or gradients by variables before those by inputs
  cycle      // stages wait for one another
};

/// The first flaw of a schedule, and where it is.
struct FirstFlaw {
  Flaw flaw       = Flaw::none;
  int stage       = 0;
  int micro_batch = 0;
  int chunk       = 0;

  friend constexpr bool operator==(FirstFlaw const&, FirstFlaw const&) = default;
};

/// Sections with a variable in common, the earlier one and the next that uses it: the earlier one adds its
/// gradients by weights to the later one's.
struct Tie {
  int earlier = 0, later = 0;
};
using Ties = std::vector<Tie>;

namespace detail {

/// A vector of n equal values. (Not every C++20 compiler makes one in a constant expression by itself.)
template <class T> constexpr std::vector<T> filled(std::size_t n, T value) {
  auto all = std::vector<T>{};
  all.reserve(n);
  while (all.size() < n) all.push_back(value);
  return all;
}

/// A schedule as it is executed: each stage does its entries in order, and begins one as soon as it has what that
/// needs.
template <PipelineSchedule S> class Execution {
 public:
  constexpr explicit Execution(int stages, Ties ties = {})
      : stages_{stages}, ties_{std::move(ties)}, all_{S::entries(stages)}, ends_{filled(4 * cells(), 0)},
        next_{filled(count(stages), std::size_t{0})}, free_{filled(count(stages), 0)},
        live_{filled(count(stages) * n, 0)}, live_of_stage_{free_}, peak_{live_}, peak_of_stage_{free_} {
    flaw_ = check_places();
    if (flaw_.flaw == Flaw::none) flaw_ = check_entries();
    if (flaw_.flaw == Flaw::none) flaw_ = run();
  }

  constexpr FirstFlaw flaw() const { return flaw_; }
  /// Entries of all stages with the earliest ticks: stage 0 first, each stage in order.
  constexpr Entries const& entries() const { return all_; }
  constexpr int ticks() const { return *std::max_element(free_.begin(), free_.end()); }
  constexpr int peak(int stage) const { return peak_of_stage_[count(stage)]; }
  constexpr int peak(int stage, int chunk) const { return peak_[count(stage * n + chunk)]; }

 private:
  static constexpr int m = S::micro_batches, n = S::chunks;
  static constexpr std::size_t count(int i) { return static_cast<std::size_t>(i); }

  constexpr std::size_t cells() const { return count(stages_ * n * m); }
  constexpr int section(Entry const& e) const { return section_of<S>(e.stage, e.chunk, stages_); }
  /// When a kind of work on a micro-batch has ended in a section; 0: not yet.
  constexpr int& end(Work work, int x, int k) {
    return ends_[static_cast<std::size_t>(work) * cells() + count(x * m + k)];
  }

  constexpr FirstFlaw check_places() const {
    auto seen = filled(count(stages_ * n), char{0});
    for (int s = 0; s < stages_; ++s)
      for (int c = 0; c < n; ++c) {
        auto const x = section_of<S>(s, c, stages_);
        if (x < 0 || x >= stages_ * n || seen[count(x)] != 0) return {Flaw::sections, s, 0, c};
        seen[count(x)] = 1;
      }
    return {};
  }

  constexpr FirstFlaw check_entries() {
    for (auto const& e : all_)
      if (e.stage < 0 || e.stage >= stages_ || e.micro_batch < 0 || e.micro_batch >= m || e.chunk < 0 || e.chunk >= n)
        return {Flaw::no_such, e.stage, e.micro_batch, e.chunk};
    std::sort(all_.begin(), all_.end(),
              [](Entry const& a, Entry const& b) { return a.stage != b.stage ? a.stage < b.stage : a.tick < b.tick; });
    auto at = filled(ends_.size(), -1);  // place of each kind of work among all
    for (std::size_t i = 0; i < all_.size(); ++i) {
      auto const& e = all_[i];
      if (i > 0 && all_[i - 1].stage == e.stage && all_[i - 1].tick == e.tick)
        return {Flaw::together, e.stage, e.micro_batch, e.chunk};
      auto& place = at[static_cast<std::size_t>(e.work) * cells() + count(section(e) * m + e.micro_batch)];
      if (place >= 0) return {Flaw::twice, e.stage, e.micro_batch, e.chunk};
      place = static_cast<int>(i);
    }
    for (int s = 0; s < stages_; ++s)
      for (int c = 0; c < n; ++c)
        for (int k = 0; k < m; ++k) {
          auto const of = [&](Work work) {
            return at[static_cast<std::size_t>(work) * cells() + count(section_of<S>(s, c, stages_) * m + k)];
          };
          auto const forward = of(Work::forward), whole = of(Work::backward), inputs = of(Work::by_inputs),
                     weights = of(Work::by_weights);
          if (whole >= 0 && (inputs >= 0 || weights >= 0)) return {Flaw::twice, s, k, c};
          if (forward < 0 || (whole < 0 && (inputs < 0 || weights < 0))) return {Flaw::missing, s, k, c};
          if ((whole >= 0 && whole < forward) || (inputs >= 0 && (inputs < forward || weights < inputs)))
            return {Flaw::order, s, k, c};
        }
    return {};
  }

  /// The tick from which on an entry can be done; -1: what it needs has not been done yet.
  constexpr int ready(Entry const& e) {
    auto const x = section(e), k = e.micro_batch;
    if (e.work == Work::forward) return x == 0 ? 0 : known(end(Work::forward, x - 1, k));
    for (auto const& tie : ties_)
      if (is_last(e.work) && tie.earlier == x &&
          std::max(end(Work::backward, tie.later, k), end(Work::by_weights, tie.later, k)) == 0)
        return -1;
    if (e.work == Work::by_weights) return 0;  // after by_inputs of the stage itself
    return x + 1 == stages_ * n ? 0 : known(std::max(end(Work::backward, x + 1, k), end(Work::by_inputs, x + 1, k)));
  }
  static constexpr int known(int end) { return end == 0 ? -1 : end; }

  constexpr FirstFlaw run() {
    auto first = filled(count(stages_) + 1, all_.size());
    for (std::size_t i = all_.size(); i-- > 0;) first[count(all_[i].stage)] = i;
    for (int s = 0; s < stages_; ++s) next_[count(s)] = first[count(s)];
    for (auto moved = true; moved;) {
      moved = false;
      for (int s = 0; s < stages_; ++s)
        for (auto& i = next_[count(s)]; i < first[count(s) + 1]; ++i) {
          auto const from = ready(all_[i]);
          if (from < 0) break;
          begin(i, std::max(from, free_[count(s)]));
          moved = true;
        }
    }
    for (int s = 0; s < stages_; ++s)
      if (auto const i = next_[count(s)]; i < first[count(s) + 1])
        return {Flaw::cycle, s, all_[i].micro_batch, all_[i].chunk};
    return {};
  }
  constexpr void begin(std::size_t i, int tick) {
    auto const& e                          = all_[i];
    auto const s                           = count(e.stage);
    all_[i].tick                           = tick;
    free_[s]                               = tick + ticks_of(e.work);
    end(e.work, section(e), e.micro_batch) = free_[s];
    auto const c                           = count(e.stage * n + e.chunk);
    if (e.work == Work::forward) {
      peak_[c]          = std::max(peak_[c], ++live_[c]);
      peak_of_stage_[s] = std::max(peak_of_stage_[s], ++live_of_stage_[s]);
    } else if (is_last(e.work)) {
      --live_[c], --live_of_stage_[s];
    }
  }

  int stages_;
  Ties ties_;
  Entries all_;
  std::vector<int> ends_;
  std::vector<std::size_t> next_;                                 // entry of each stage
  std::vector<int> free_;                                         // tick from which on a stage is free
  std::vector<int> live_, live_of_stage_, peak_, peak_of_stage_;  // activations: of each chunk; of each stage
  FirstFlaw flaw_;
};

}  // namespace detail

/// The first flaw of a schedule for so many stages.
template <PipelineSchedule S> constexpr FirstFlaw check(int stages, Ties const& ties = {}) {
  auto const executed = detail::Execution<S>{stages, ties};
  return executed.flaw();
}

/// Compiles only without a flaw; else the compiler's message shows v: stage, micro-batch, chunk.
template <class S, FirstFlaw v> struct Proof {
  static_assert(v.flaw != Flaw::no_such,
                "chorale: this schedule of a pipeline names a stage, a micro-batch or a chunk "
                "that there is not. The FirstFlaw says which. See docs/43-pipelines.md");
  static_assert(v.flaw != Flaw::sections,
                "chorale: in this schedule of a pipeline section(stage, chunk, stages) is "
                "not one section for each chunk of each stage. It gives each number below stages * chunks once. See "
                "docs/43-pipelines.md");
  static_assert(v.flaw != Flaw::together,
                "chorale: in this schedule of a pipeline a stage does two things in one "
                "tick. The FirstFlaw says which stage. See docs/43-pipelines.md");
  static_assert(v.flaw != Flaw::twice,
                "chorale: in this schedule of a pipeline a micro-batch goes through a stage "
                "twice. The FirstFlaw says which micro-batch, and which stage. See docs/43-pipelines.md");
  static_assert(v.flaw != Flaw::missing,
                "chorale: in this schedule of a pipeline a micro-batch is missing: each goes "
                "forward and backward through each stage. The FirstFlaw says which micro-batch, and which stage. See "
                "docs/43-pipelines.md");
  static_assert(v.flaw != Flaw::order,
                "chorale: in this schedule of a pipeline a stage is in the wrong order: "
                "forward, then backward by inputs, then by weights. The FirstFlaw says for which micro-batch. See "
                "docs/43-pipelines.md");
  static_assert(v.flaw != Flaw::cycle,
                "chorale: in this schedule of a pipeline stages wait for one another, for ever. "
                "The FirstFlaw says where the first of them waits. See docs/43-pipelines.md");
  static constexpr bool checked = true;  // so that the sentence is the only error
};

/// A checked schedule for so many stages, with the earliest ticks: a constant.
///
///   static_assert(pipelines::Timetable<OneForwardOneBackward<8>, 4>::idle() == 9);
///   std::cout << pipelines::Timetable<ZeroBubbleH1<8>, 4>::text();
template <PipelineSchedule S, int stages> class Timetable {
  static_assert(stages >= 1, "chorale: a pipeline has at least 1 stage");
  static constexpr auto count  = static_cast<std::size_t>(std::max(stages, 1));  // refused: one stage
  static constexpr auto number = [] {
    auto const all = S::entries(static_cast<int>(count));  // a name, which clang needs
    return all.size();
  }();

 public:
  /// All of it, computed once.
  static constexpr auto made = [] {
    struct {
      FirstFlaw flaw{};
      std::array<Entry, number> entries{};
      std::array<int, count> peaks{};
      std::array<int, count * S::chunks> peaks_of_chunks{};
      int ticks = 0;
    } all;
    auto const executed = detail::Execution<S>{static_cast<int>(count)};
    all.flaw            = executed.flaw();
    if (all.flaw.flaw != Flaw::none) return all;
    for (std::size_t i = 0; i < all.entries.size(); ++i) all.entries[i] = executed.entries()[i];
    for (int s = 0; s < static_cast<int>(count); ++s) {
      all.peaks[static_cast<std::size_t>(s)] = executed.peak(s);
      for (int c = 0; c < S::chunks; ++c)
        all.peaks_of_chunks[static_cast<std::size_t>(s * S::chunks + c)] = executed.peak(s, c);
    }
    all.ticks = executed.ticks();
    return all;
  }();
  static_assert(Proof<S, made.flaw>::checked);

  /// All entries: stage 0 first, each stage in order.
  static constexpr auto const& entries = made.entries;
  /// The most micro-batches whose activations a stage has at once, each chunk counted by itself.
  static constexpr auto const& peaks   = made.peaks;
  /// Ticks of a whole step.
  static constexpr int ticks           = made.ticks;

  /// The most micro-batches whose activations a stage has at once for one of its chunks.
  static constexpr int peak(int stage, int chunk) {
    return made.peaks_of_chunks[static_cast<std::size_t>(stage * S::chunks + chunk)];
  }

  /// Ticks of a step in which a stage does nothing: equally many on each.
  static constexpr int idle() { return ticks - 3 * S::micro_batches * S::chunks; }

  /// The schedule as a grid, a line for each stage and a column for each tick. Forward of micro-batch 3 is `F3`,
  /// backward `B3 = `, by inputs `I3`, by weights `W3`; odd chunks have lower-case letters.
  ///
  ///   0 F0 F1 .  .  B0 =  B1 =
  ///   1 .  F0 B0 =  F1 B1 =  .
  static std::string text() {
    constexpr auto letters = std::array{"FBIW", "fbiw"};
    auto const width       = std::to_string(S::micro_batches - 1).size() + 2;
    auto grid              = std::string{};
    auto const put         = [&](std::string cell) {
      cell.resize(width, ' ');
      grid += cell;
    };
    for (int s = 0; s < stages; ++s) {
      grid += std::to_string(s) + ' ';
      auto tick = 0;
      for (auto const& e : entries) {
        if (e.stage != s) continue;
        for (; tick < e.tick; ++tick) put(".");
        put(letters[static_cast<std::size_t>(e.chunk % 2)][static_cast<std::size_t>(e.work)] +
            std::to_string(e.micro_batch));
        for (++tick; tick < e.tick + ticks_of(e.work); ++tick) put("=");
      }
      for (; tick < ticks; ++tick) put(".");
      while (grid.back() == ' ') grid.pop_back();
      grid += '\n';
    }
    return grid;
  }
};

}  // namespace chorale::pipelines
