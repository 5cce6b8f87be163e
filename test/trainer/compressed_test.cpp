// SPDX-License-Identifier: Apache-2.0
//
// Training with gradients that are rounded, or partly left out, on their way.
#include "test/support/folder.hpp"
#include "test/support/tiny.hpp"

#include <chorale/reduce/compressed.hpp>
#include <chorale/reduce/top_k.hpp>

#include <catch2/catch.hpp>

#include <limits>

using namespace chorale;

namespace {

/// Batches of 301 rows: bf16 has no 301.
auto batches_of_301(std::size_t batches) {
  return tiny::Batches<int>{tiny::batch<int>(batches * 301, 64, 1), std::vector<std::size_t>(batches, 301)};
}

}  // namespace

TEMPLATE_TEST_CASE("counts, loss and metrics arrive exactly, and all replicas stay bit-equal", "[trainer][wire]",
                   Compressed<bf16>, Compressed<fp16>, TopK<100>) {
  auto const replicas = GENERATE(1, 2, 3);
  auto compressed     = tiny::trainer(replicas, TestType{});
  auto plain          = tiny::trainer(replicas, RingAllReduce{});
  auto const first    = compressed.fit(batches_of_301(1), {.show = Show::nothing})[0].scores;
  auto const same     = plain.fit(batches_of_301(1), {.show = Show::nothing})[0].scores;
  CHECK(first.rows() == 301);
  CHECK(first.loss() == Approx(same.loss()).epsilon(1e-6));  // of the variables before the first update
  CHECK(first["accuracy"] == same["accuracy"]);
  compressed.fit(batches_of_301(5), {.show = Show::nothing});
  for (auto const hash : compressed.hashes()) CHECK(hash == compressed.hashes()[0]);
}

TEMPLATE_TEST_CASE("training goes as far as with exact gradients", "[trainer][wire]", Compressed<bf16>, TopK<100>) {
  auto const after = [](auto reduce) {
    auto trainer       = tiny::trainer(3, reduce);
    auto const history = trainer.fit(batches_of_301(3), {.epochs = 60, .show = Show::nothing});
    CHECK(history.back().scores.loss() < 0.75 * history.front().scores.loss());
    return history.back().scores.loss();
  };
  CHECK(after(TestType{}) == Approx(after(RingAllReduce{})).epsilon(0.05));
}

TEST_CASE("what was held back is in a checkpoint", "[trainer][resume]") {
  auto const folder = chorale::test::Folder{};
  auto const data   = batches_of_301(5);
  auto const until  = [&](int epochs, int replicas, bool saved) {
    auto trainer = tiny::trainer(replicas, TopK<100>{});
    auto options = FitOptions{.epochs = epochs, .show = Show::nothing};
    if (saved) options.checkpoints.folder = folder.path;
    trainer.fit(data, options);
    return trainer.hashes()[0];
  };
  auto const undisturbed = until(3, 3, false);
  until(2, 3, true);
  CHECK(until(3, 3, true) == undisturbed);

  auto const owed = ErrorFeedback{2, {1, 2, 3, 10, 20, 30}};
  CHECK(owed.of(1, 2) == std::vector<float>{10, 20, 30});
  CHECK(owed.of(0, 3) == std::vector<float>{11, 22, 33});  // of another number of ranks
  CHECK(owed.of(1, 3) == std::vector<float>{0, 0, 0});
}

TEST_CASE("a gradient that is not finite is named under a lossy algorithm too", "[trainer][wire]") {
  auto bad                  = batches_of_301(1);
  bad.rows.x[64 * 200 + 27] = std::numeric_limits<float>::quiet_NaN();  // the second replica's of two
  auto trainer              = tiny::trainer(2, Compressed<bf16>{});
  CHECK_THROWS_WITH(trainer.fit(bad, {.show = Show::nothing}), Catch::Contains("not finite on replica 1"));
}
