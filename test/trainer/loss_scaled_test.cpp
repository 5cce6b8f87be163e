// SPDX-License-Identifier: Apache-2.0
//
// Losses that are scaled: the bits of those that are not, and steps left out where gradients overflow.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/optim/loss_scaled.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/strategy/sharded.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <utility>
#include <vector>

namespace loss_scaled_test {

using namespace chorale;
using chorale::test::Folder;
using optim::LossScaled;
using tiny::quietly;

namespace {

template <class O, class S = MirroredStrategy<>>
auto learner(O optimizer, S strategy = MirroredStrategy{Cpu::logical(2)}) {
  return Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optimizer, metric::Accuracy{}), strategy,
                 Reproducible<8>{}, LocalTransport{}, 7};
}

optim::LossScale scale_of(auto& trainer) { return trainer.copies()[0].optimizer.loss_scale; }

/// One layer whose gradients are as large as its inputs: (4) to (3).
struct Linear : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};

template <class O, class S = MirroredStrategy<>>
auto linear(O optimizer, S strategy = MirroredStrategy{Cpu::logical(2)}) {
  return Trainer{nn::compile<Linear>(loss::SparseCrossEntropy{}, optimizer), strategy};
}
void to_zero(auto& trainer) {  // its losses are log 3
  trainer.set_variables(std::vector<float>(trainer.variables().values.size()));
}

/// Batches of four rows, of which the last alone is large; it is the second replica's.
tiny::Batches<int> with_large_rows(std::size_t batches, float large) {
  auto rows = tiny::batch<int>(4 * batches, 4, 1);
  for (std::size_t i = 3; i < rows.rows; i += 4) rows.x[4 * i] = large;
  return {std::move(rows), std::vector<std::size_t>(batches, 4)};
}

/// Batches of four rows, of which those that `are` says have a row with a large number.
tiny::Batches<int> with_some(std::vector<bool> const& are, float large) {
  auto rows = tiny::batch<int>(4 * are.size(), 4, 1);
  for (std::size_t i = 0; i < are.size(); ++i)
    if (are[i]) rows.x[4 * (4 * i + 3)] = large;
  return {std::move(rows), std::vector<std::size_t>(are.size(), 4)};
}
/// The batches of which `are` says no.
tiny::Batches<int> without(std::vector<bool> const& are) {
  auto kept = with_some(are, 0);
  for (auto i = are.size(); i-- > 0;) {
    auto const at = static_cast<std::ptrdiff_t>(4 * i);
    if (!are[i]) continue;
    kept.rows.x.erase(kept.rows.x.begin() + 4 * at, kept.rows.x.begin() + 4 * (at + 4));
    kept.rows.y.erase(kept.rows.y.begin() + at, kept.rows.y.begin() + at + 4);
    kept.sizes.pop_back();
  }
  kept.rows.rows = 4 * kept.sizes.size();
  return kept;
}

}  // namespace

TEST_CASE("a scaled loss gives the bits of one that is not, while its scale grows too", "[trainer][scale]") {
  auto const rule = optim::Adam{.global_clipnorm = 0.5F};
  auto plain      = learner(rule);
  auto scaled     = learner(LossScaled{rule, 1'024, 3});
  auto central    = learner(LossScaled{rule, 1'024, 3}, CentralStorageStrategy{Cpu::logical(2)});
  auto const want = plain.fit(tiny::uneven(), quietly);
  auto const got  = scaled.fit(tiny::uneven(), quietly);
  central.fit(tiny::uneven(), quietly);
  CHECK(scaled.hashes() == plain.hashes());
  CHECK(central.hashes()[0] == plain.hashes()[0]);
  CHECK(got.back().scores.loss() == want.back().scores.loss());
  CHECK(got.back().skipped == 0);
  CHECK(scale_of(scaled).value == 65'536);  // 20 steps, doubled 6 times
  CHECK(scale_of(scaled).steps == 2);
  CHECK(scale_of(central).value == 65'536);
}

TEST_CASE("a scale stops to grow at 2^24", "[trainer][scale]") {
  auto scaled = learner(LossScaled{optim::SGD{}, 4'194'304, 1});
  scaled.fit(tiny::uneven(), quietly);
  CHECK(scale_of(scaled).value == optim::LossScale::largest);
}

TEST_CASE("steps whose gradients overflow on one replica are left out on all, until the scale fits",
          "[trainer][scale]") {
  auto const rule = optim::SGD{.learning_rate = 1e-33F};
  auto scaled     = linear(LossScaled{rule, optim::LossScale::largest});
  auto plain      = linear(rule);
  to_zero(scaled), to_zero(plain);
  auto const all  = scaled.fit(with_large_rows(20, 1e33F), quietly);
  auto const left = all.back().skipped;
  CHECK(left == 6);  // 2/3 · 1e33 · 2^24 / 2^6 is the first below 3.4e38
  CHECK(scale_of(scaled).value == optim::LossScale::largest / 64);
  CHECK(scale_of(scaled).steps == 14);
  CHECK(scaled.copies()[1].optimizer.loss_scale.value == scale_of(scaled).value);
  CHECK(scaled.hashes()[0] == scaled.hashes()[1]);

  auto rest = with_large_rows(20, 1e33F);
  rest.rows.x.erase(rest.rows.x.begin(), rest.rows.x.begin() + static_cast<std::ptrdiff_t>(left * 4 * 4));
  rest.rows.y.erase(rest.rows.y.begin(), rest.rows.y.begin() + static_cast<std::ptrdiff_t>(left * 4));
  rest.rows.rows -= left * 4;
  rest.sizes.resize(20 - left);
  auto const before = plain.hashes();
  plain.fit(rest, quietly);
  CHECK(plain.hashes() != before);
  CHECK(scaled.hashes() == plain.hashes());
}

TEST_CASE("rates, corrections and averages count the updates that were applied, not the steps that were left out",
          "[trainer][scale]") {
  auto first = std::vector<bool>(48), some = first;  // overflow; not finite
  for (std::size_t i = 0; i < 8; ++i) first[i] = true, some[i * i % 48] = true;
  auto const count  = static_cast<std::size_t>(std::ranges::count(some, true));
  auto const rate   = optim::warm_up(20, 1e-2F).then(optim::cosine(100, 1e-2F));
  auto const folder = Folder{};
  auto const check  = [&](auto const& rule, auto const& strategy) {
    auto plain = linear(rule, strategy), skips = linear(rule, strategy), rest = linear(rule, strategy);
    auto scaled = linear(LossScaled{rule, optim::LossScale::largest}, strategy);
    auto parts  = linear(LossScaled{rule, optim::LossScale::largest}, strategy);
    auto goes   = linear(LossScaled{rule, optim::LossScale::largest}, strategy);
    for (auto* trainer : {&plain, &skips, &rest}) to_zero(*trainer);
    for (auto* trainer : {&scaled, &parts, &goes}) to_zero(*trainer);
    auto const same = [](auto& one, auto& other) {
      CHECK(one.hashes() == other.hashes());
      CHECK(one.learning_rate() == other.learning_rate());
      auto const slots = one.copies()[0].optimizer.slots(), others = other.copies()[0].optimizer.slots();
      CHECK(std::vector<float>(slots.begin(), slots.end()) == std::vector<float>(others.begin(), others.end()));
    };
    plain.fit(without(first), quietly);
    CHECK(plain.learning_rate() == optim::Rate{rate}(optim::Moment{.step = 40}));
    CHECK(scaled.fit(with_some(first, 4e33F), quietly).back().skipped == 8);
    CHECK(scaled.step() == 48);
    same(scaled, plain);
    auto options          = quietly;
    options.on_non_finite = NonFinite::skip;
    CHECK(skips.fit(with_some(some, NAN), options).back().skipped == count);
    rest.fit(without(some), quietly);
    same(skips, rest);

    options = {.epochs = 1, .show = Show::nothing, .checkpoints = {.folder = folder.path}, .steps_per_epoch = 24};
    parts.fit(with_some(first, 4e33F), options);
    options.epochs = 2;
    goes.fit(with_some(first, 4e33F), options);
    same(goes, plain);
    std::filesystem::remove_all(folder.path);
  };
  check(optim::Averaged{optim::Adam{.learning_rate = rate}}, MirroredStrategy{Cpu::logical(2)});
  check(optim::Grouped{optim::Nadam{.learning_rate = rate}, {{.names = "dense/bias", .learning_rate = 0.5F}}},
        MirroredStrategy{Cpu::logical(1)});
  check(optim::Lamb{.learning_rate = rate}, CentralStorageStrategy{Cpu::logical(2)});
  check(optim::AdamW{.learning_rate = rate, .global_clipnorm = 0.5F}, ShardedStrategy<Zero::one>{Cpu::logical(2)});
}

TEST_CASE("gradients that are not finite at scale 1 are the options' matter", "[trainer][scale]") {
  auto rows = tiny::batch<int>(80, 4, 1);
  for (std::size_t i = 0; i < rows.rows; ++i) rows.x[4 * i] = 3e38F, rows.y[i] = 1;
  auto const endless = tiny::Batches<int>{std::move(rows), std::vector<std::size_t>(20, 4)};
  auto stops         = linear(LossScaled{optim::SGD{}, 4});
  to_zero(stops);
  auto const before = stops.hashes();
  CHECK_THROWS_WITH(stops.fit(endless, quietly), Catch::Contains("step 2") && Catch::Contains("not finite"));
  CHECK(stops.hashes() == before);
  CHECK(scale_of(stops).value == 1);

  auto skips = linear(LossScaled{optim::SGD{}, 4});
  to_zero(skips);
  auto options          = quietly;
  options.on_non_finite = NonFinite::skip;
  CHECK(skips.fit(endless, options).back().skipped == 20);
  CHECK(skips.hashes() == before);
}

TEST_CASE("a run that goes on has the scale that it had", "[trainer][scale][resume]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto const until  = [&](int epochs) {
    return FitOptions{.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
  };
  auto const rule  = LossScaled{optim::Adam{}, 1'024, 7};
  auto undisturbed = learner(rule);
  undisturbed.fit(data, {.epochs = 2, .show = Show::nothing});
  learner(rule).fit(data, until(1));
  auto second = learner(rule, CentralStorageStrategy{Cpu::logical(2)});
  second.fit(data, until(2));
  CHECK(second.hashes()[0] == undisturbed.hashes()[0]);
  CHECK(scale_of(second).value == 32'768);  // 40 steps, doubled 5 times
  CHECK(scale_of(second).steps == 5);

  auto unscaled = learner(optim::Adam{});  // goes on from a scaled run
  unscaled.fit(data, until(3));
  CHECK(unscaled.step() == 60);
  CHECK(scale_of(unscaled).value == 1);
  auto anew = learner(rule);  // and this from one that was not
  anew.fit(data, until(4));
  CHECK(anew.step() == 80);
  CHECK(scale_of(anew).value == 4'096);  // 20 steps, doubled twice
  auto served = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                        ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}, 7};
  served.fit(data, until(5));
  CHECK(served.step() == 100);
}

TEST_CASE("a loss scale that is none is refused", "[trainer][scale]") {
  for (auto const scale : {0.0F, 0.5F, 3.0F, -2.0F, 33'554'432.0F, NAN})
    CHECK_THROWS_WITH((LossScaled{optim::SGD{}, scale}), Catch::Contains("a power of two from 1 to 16777216, got"));
  CHECK_THROWS_WITH((LossScaled{optim::SGD{}, 2, 0}), Catch::Contains("after 1 step or more, got 0"));
}

}  // namespace loss_scaled_test
