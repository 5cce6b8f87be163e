// SPDX-License-Identifier: Apache-2.0
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/nn/pipeline/timetable.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

using namespace chorale;
using pipelines::Entries;
using pipelines::Flaw;
using pipelines::FirstFlaw;
using pipelines::Timetable;
using pipelines::Work;

namespace {

/// True if a schedule is idle for so many of the ticks of a step: idle / ticks == (p-1) / (of+p-1).
template <class S, int stages> constexpr bool idles(int of) {
  using T = Timetable<S, stages>;
  return T::idle() * (of + stages - 1) == T::ticks * (stages - 1);
}

template <int m, int p> constexpr bool formulas_hold() {
  return idles<AllForwardAllBackward<m>, p>(m) && idles<OneForwardOneBackward<m>, p>(m) &&
         Timetable<OneForwardOneBackward<m>, p>::idle() == 3 * (p - 1) &&
         (m < p || 3 * Timetable<ZeroBubbleH1<m>, p>::idle() == Timetable<OneForwardOneBackward<m>, p>::idle()) &&
         (m < p || Timetable<ZeroBubbleV<m>, p>::idle() == p - 1) &&
         (m % p != 0 || (idles<Interleaved<m, 2>, p>(2 * m) && idles<Interleaved<m, 3>, p>(3 * m)));
}
static_assert(formulas_hold<1, 1>() && formulas_hold<4, 1>());
static_assert(formulas_hold<1, 2>() && formulas_hold<4, 2>() && formulas_hold<8, 2>());
static_assert(formulas_hold<1, 3>() && formulas_hold<6, 3>() && formulas_hold<8, 3>());
static_assert(formulas_hold<1, 4>() && formulas_hold<4, 4>() && formulas_hold<8, 4>());
static_assert(Timetable<ZeroBubbleV<16>, 8>::idle() == 7 && Timetable<ZeroBubbleH1<16>, 8>::idle() == 7);

/// The activations that schedules promise, on each stage.
template <int m, int p> constexpr bool peaks_hold() {
  for (int s = 0; s < p; ++s) {
    auto const i = static_cast<std::size_t>(s);
    if (Timetable<AllForwardAllBackward<m>, p>::peaks[i] != m) return false;
    if (Timetable<OneForwardOneBackward<m>, p>::peaks[i] != std::min(m, p - s)) return false;
    if (Timetable<ZeroBubbleH1<m>, p>::peaks[i] != std::min(m, p)) return false;
    auto const round = 2 * (p - s - 1) + p + 1;
    if (m % p == 0 && Timetable<Interleaved<m, 2>, p>::peaks[i] != std::min(2 * m, round)) return false;
    if (Timetable<ZeroBubbleV<m>, p>::peaks[i] != 2 * std::min(m, p)) return false;  // of half a stage each
  }
  return true;
}
static_assert(peaks_hold<1, 2>() && peaks_hold<8, 2>() && peaks_hold<4, 3>() && peaks_hold<8, 4>());

/// A schedule of two stages and two micro-batches, of which a mistake changes one entry.
constexpr Entries good() {
  auto all = Entries{};
  for (int s = 0; s < 2; ++s)
    for (int k = 0; k < 2; ++k)
      all.push_back({k, s, Work::forward, k, 0}), all.push_back({2 + k, s, Work::backward, k, 0});
  return all;
}
template <int i, int tick, int stage, Work work, int micro_batch> constexpr Entries changed(int) {
  auto all = good();
  all[i]   = {tick, stage, work, micro_batch, 0};
  return all;
}
constexpr Entries unchanged(int) { return good(); }
constexpr Entries without_last(int) {
  auto all = good();
  all.pop_back();
  return all;
}
/// Stage 0 waits for backward of micro-batch 1 before it sends micro-batch 0, which stage 1 does first.
constexpr Entries crossed(int) {
  return {{0, 0, Work::forward, 1, 0},  {1, 0, Work::backward, 1, 0}, {2, 0, Work::forward, 0, 0},
          {3, 0, Work::backward, 0, 0}, {0, 1, Work::forward, 0, 0},  {1, 1, Work::backward, 0, 0},
          {2, 1, Work::forward, 1, 0},  {3, 1, Work::backward, 1, 0}};
}
constexpr Entries weights_first(int) {
  return {{0, 0, Work::forward, 0, 0}, {1, 0, Work::by_weights, 0, 0}, {2, 0, Work::by_inputs, 0, 0}};
}
struct NoSection : pipelines::Table<unchanged, 2> {
  static constexpr int section(int, int, int) { return 0; }
};

template <auto entries, int m = 2, int stages = 2> constexpr Flaw flaw_of() {
  return pipelines::check<pipelines::Table<entries, m>>(stages).flaw;
}
static_assert(flaw_of<unchanged>() == Flaw::none);
static_assert(pipelines::check<NoSection>(2) == FirstFlaw{Flaw::sections, 1, 0, 0});
using OtherStage = pipelines::Table<changed<0, 0, 2, Work::forward, 0>, 2>;
static_assert(pipelines::check<OtherStage>(2) == FirstFlaw{Flaw::no_such, 2, 0, 0});
static_assert(flaw_of<changed<0, 0, 0, Work::forward, 2>>() == Flaw::no_such);
static_assert(flaw_of<changed<0, 1, 0, Work::forward, 0>>() == Flaw::together);
using SameTwice = pipelines::Table<changed<0, 0, 0, Work::forward, 1>, 2>;
static_assert(pipelines::check<SameTwice>(2) == FirstFlaw{Flaw::twice, 0, 1, 0});
static_assert(flaw_of<changed<1, 2, 0, Work::by_inputs, 0>>() == Flaw::missing);
static_assert(pipelines::check<pipelines::Table<without_last, 2>>(2) == FirstFlaw{Flaw::missing, 1, 1, 0});
static_assert(flaw_of<changed<1, -1, 0, Work::backward, 0>>() == Flaw::order);
static_assert(flaw_of<weights_first, 1, 1>() == Flaw::order);
static_assert(pipelines::check<pipelines::Table<crossed, 2>>(2).flaw == Flaw::cycle);

/// A variable that both sections use: stage 0 needs what stage 1 does with its weights after the next micro-batch.
constexpr Entries weights_last(int) {
  return {{0, 0, Work::forward, 0, 0},   {1, 0, Work::by_inputs, 0, 0}, {2, 0, Work::by_weights, 0, 0},
          {3, 0, Work::forward, 1, 0},   {4, 0, Work::backward, 1, 0},  {0, 1, Work::forward, 0, 0},
          {1, 1, Work::by_inputs, 0, 0}, {2, 1, Work::forward, 1, 0},   {3, 1, Work::backward, 1, 0},
          {4, 1, Work::by_weights, 0, 0}};
}
static_assert(flaw_of<weights_last>() == Flaw::none);
static_assert(pipelines::check<pipelines::Table<weights_last, 2>>(2, {{0, 1}}).flaw == Flaw::cycle);
static_assert(pipelines::check<ZeroBubbleH1<8>>(4, {{0, 3}}).flaw == Flaw::none);
static_assert(pipelines::check<ZeroBubbleV<8>>(4, {{0, 7}}).flaw == Flaw::none);

/// One micro-batch in the pipeline at a time, as docs/43-pipelines.md has it.
constexpr Entries in_turn(int stages) {
  auto all = Entries{};
  for (int s = 0; s < stages; ++s)
    for (int k = 0; k < 4; ++k)
      all.push_back({2 * k, s, Work::forward, k, 0}), all.push_back({2 * k + 1, s, Work::backward, k, 0});
  return all;
}
static_assert(Timetable<pipelines::Table<in_turn, 4>, 3>::idle() == 24);

}  // namespace

TEST_CASE("a schedule of a pipeline is printed as a grid of stages and ticks", "[nn][pipeline]") {
  CHECK(Timetable<OneForwardOneBackward<3>, 2>::text() ==
        "0 F0 F1 .  .  B0 =  F2 B1 =  .  B2 =\n"
        "1 .  F0 B0 =  F1 B1 =  F2 B2 =  .  .\n");
  CHECK(Timetable<AllForwardAllBackward<2>, 2>::text() ==
        "0 F0 F1 .  .  .  B0 =  B1 =\n"
        "1 .  F0 F1 B0 =  B1 =  .  .\n");
  CHECK(Timetable<ZeroBubbleH1<4>, 3>::text() ==
        "0 F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
        "1 .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
        "2 .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
  CHECK(Timetable<Interleaved<2, 2>, 2>::text() ==
        "0 F0 F1 f0 f1 .  .  b0 =  .  b1 =  B0 =  B1 =\n"
        "1 .  F0 F1 f0 b0 =  f1 b1 =  B0 =  B1 =  .  .\n");
  CHECK(Timetable<ZeroBubbleV<2>, 2>::text() ==
        "0 F0 F1 .  f0 i0 f1 i1 I0 w0 I1 w1 W0 W1\n"
        "1 .  F0 f0 F1 f1 i0 I0 i1 I1 w0 W0 w1 W1\n");
}
