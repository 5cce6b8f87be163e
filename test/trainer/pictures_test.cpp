// SPDX-License-Identifier: Apache-2.0
//
// ResNet-20 of half the width learns drawn shapes as examples/17_resnet.cpp does, whose own test is a shorter run.
#include "test/support/slow.hpp"

#include <chorale/chorale.hpp>
#include <chorale/data/formats/image.hpp>
#include <chorale/nn/networks/resnet.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace pictures_test {

using namespace chorale;

namespace {

/// A function of map: moves a picture by up to 4 pixels and mirrors half of them, or leaves it as it is.
auto scaled(bool varies) {
  return [varies, moved = std::vector<std::uint8_t>{}](auto const& row, std::vector<float>& x, std::vector<int>& y,
                                                       data::Place at) mutable {
    constexpr auto shape = data::ImageShape{32, 32, 3};
    auto const random    = at.random(Seed{3});
    auto const by        = varies ? data::random_shift(4, random) : data::Shift{};
    data::shift(data::ImageView<std::uint8_t>{row.x, shape}, by, moved);
    data::rescale(data::ImageView<std::uint8_t>{moved, shape}, 1.0F / 64, -2, x,
                  varies && random.uniform(2) < 0.5F ? data::Mirror::columns : data::Mirror::none);
    y.assign(row.y.begin(), row.y.end());
  };
}

/// The accuracy on 1,000 shapes that were not seen, after so many epochs of so many shapes on two replicas.
double learned(std::size_t rows, int epochs) {
  using Net        = nn::resnet::ResNet20<10, 8, nn::SyncBatchNorm<nn::Momentum<90>, nn::Epsilon<10>>>;
  auto const steps = static_cast<std::int64_t>((rows + 31) / 32) * epochs, warm = steps / 10;
  auto const rate = optim::warm_up(warm, 0.1F).then(optim::cosine(steps - warm, 0.1F));
  auto const rule = optim::SGD{
      .learning_rate = rate, .momentum = 0.9F, .weight_decay = 1e-4F, .decay = optim::SGD::Decay::in_gradient};
  auto const plain = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
  auto const model =
      nn::compile<Net>(loss::SparseCrossEntropy{},
                       optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}}, metric::Accuracy{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{}, LocalTransport{}, 1};
  trainer.fit(data::shapes(rows, 1).cache().shuffle(rows).map(scaled(true)).batch(32),
              {.epochs = epochs, .show = Show::nothing});
  CHECK(trainer.hashes()[0] == trainer.hashes()[1]);
  auto const scores = trainer.evaluate(data::shapes(1'000, 1, rows).map(scaled(false)).batch(100));
  std::printf("after %d epochs of %zu shapes, %.3f of others are right\n", epochs, rows, scores["accuracy"]);
  return scores["accuracy"];
}

}  // namespace

TEST_CASE("a ResNet-20 learns shapes", "[trainer][slow]") {
  if (!test::slow_or_skip("a ResNet-20 learns shapes")) return;
  CHECK(learned(4'000, 10) >= 0.97);
}

}  // namespace pictures_test
