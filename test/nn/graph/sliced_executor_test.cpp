// SPDX-License-Identifier: Apache-2.0
//
// A device of several threads, which computes a batch in slices, beside a device of one thread.
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/networks/residual.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace chorale;
using namespace chorale::nn;

namespace {

struct SlicedNormed : Sequential<Input<8, 8, 1>, Conv2D<5, 3>, BatchNorm<>, ReLU, MaxPool2D<2>, Flatten, Dense<16>,
                                 BatchNorm<>, Tanh, Dropout<30>, Dense<3>> {};
struct SlicedSynced : Sequential<Input<8, 8, 1>, Conv2D<5, 3>, SyncBatchNorm<>, ReLU, Flatten, Dense<16>,
                                 SyncBatchNorm<>, Tanh, Dense<3>> {};
struct SlicedBranched
    : Sequential<Input<8, 8, 1>, Conv2D<3, 3, Same>, Residual<Tanh, Conv2D<3, 3, Pad<1>, NoBias>>, Flatten, Dense<3>> {
};
/// More variables than slices are worth: the threads compute its layers together.
struct SlicedHeavy : Sequential<Input<8, 8, 1>, Flatten, Dense<1024>, Tanh, Dense<1024>, Tanh, Dense<3>> {};

template <class Net> auto instance(Cpu const& device) {
  return compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}).instantiate(device, 3);
}

/// The largest difference of two arrays, relative to the largest number in the second.
double difference(Span<float const> got, Span<float const> wanted) {
  REQUIRE(got.size() == wanted.size());
  auto apart = 0.0, largest = 1e-12;
  for (std::size_t i = 0; i < got.size(); ++i) {
    apart   = std::max(apart, std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])));
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
  }
  return apart / largest;
}

std::vector<float> kept(Span<float const> values) { return {values.begin(), values.end()}; }

}  // namespace

TEMPLATE_TEST_CASE("slices of a batch give the loss, the gradients and the outputs of one thread", "[nn][sliced]",
                   tiny::Small, SlicedNormed, SlicedSynced, SlicedBranched) {
  auto one = instance<TestType>(Cpu::logical(1)[0]);
  for (int const threads : {2, 3, 4}) {
    auto several = instance<TestType>(Cpu::with_threads(threads));
    for (std::size_t const rows : {32U, 13U, 9U, 8U, 7U, 1U}) {  // of one slice up to four, even and uneven
      INFO(threads << " threads, " << rows << " rows");
      auto const batch  = tiny::batch<int>(rows, 64, 1, rows);
      auto const wanted = one.value_and_gradient(batch.view(), 5, LooksAtEnd{}, Together{});
      auto const got    = several.value_and_gradient(batch.view(), 5, LooksAtEnd{}, Together{});
      CHECK(got.count == wanted.count);
      CHECK(got.value == Approx(wanted.value).epsilon(1e-5));
      CHECK(difference(several.gradients().body(), one.gradients().body()) < 1e-5);
      CHECK(difference(several.gradients().values, one.gradients().values) < 1e-5);  // and the header

      auto const at_end = kept(several.gradients().values);
      auto ends         = std::vector<std::size_t>{};
      auto early        = std::vector<float>{};  // gradients as they were when called final
      several.value_and_gradient(
          batch.view(), 5,
          [&](std::size_t end) {
            ends.push_back(end);
            auto const values = several.gradients().values;
            early.insert(early.end(), values.begin() + static_cast<std::ptrdiff_t>(early.size()),
                         values.begin() + static_cast<std::ptrdiff_t>(end));
          },
          Together{});
      CHECK(std::is_sorted(ends.begin(), ends.end()));
      CHECK(ends.size() > 3);  // a call for each layer with variables
      CHECK(early == at_end);  // the same bits, each final when it was said

      auto sums = std::array<std::array<float, plan::header>, 2>{};
      one.evaluate(batch.view(), sums[0]);
      several.evaluate(batch.view(), sums[1]);
      CHECK(difference(sums[1], sums[0]) < 1e-5);
      auto const outputs = kept(one.predict(batch.view()));
      CHECK(difference(several.predict(batch.view()), outputs) < 1e-5);
    }
  }
}

TEST_CASE("a network with too many variables for slices learns the same on several threads", "[nn][sliced]") {
  auto const batch = tiny::batch<int>(9, 64, 1);
  auto one         = instance<SlicedHeavy>(Cpu::logical(1)[0]);
  auto two         = instance<SlicedHeavy>(Cpu::with_threads(2));
  one.value_and_gradient(batch.view(), 0, LooksAtEnd{}, Together{});
  two.value_and_gradient(batch.view(), 0, LooksAtEnd{}, Together{});
  CHECK(difference(two.gradients().body(), one.gradients().body()) < 1e-5);
}

TEST_CASE("the same number of threads gives the same bits", "[nn][sliced]") {
  auto const batch = tiny::batch<int>(32, 64, 1);
  auto wanted      = std::vector<float>{};
  for (int run = 0; run < 20; ++run) {
    auto copy = instance<SlicedNormed>(Cpu::with_threads(3));
    copy.value_and_gradient(batch.view(), 0, LooksAtEnd{}, Together{});
    if (run == 0) wanted = kept(copy.gradients().values);
    REQUIRE(std::ranges::equal(copy.gradients().values, wanted));
  }
}

TEST_CASE("replicas of several threads learn with SyncBatchNorm what one replica learns", "[nn][sliced]") {
  auto const rows    = tiny::Batches<int>{tiny::batch<int>(90, 64, 1), {32, 17, 1, 24, 16}};
  auto const learned = [&](auto strategy) {
    auto trainer = Trainer{compile<SlicedSynced>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F}),
                           strategy, RingAllReduce{}, LocalTransport{}, 7};
    trainer.fit(rows, {.epochs = 2, .show = Show::nothing, .compare_every = 1});
    return kept(trainer.copies()[0].net.variables().values);
  };
  auto const wanted = learned(OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const two    = std::vector<Cpu>(2, Cpu::with_threads(2));
  CHECK(difference(learned(MirroredStrategy{two}), wanted) < 1e-4);
}

TEST_CASE("a label that is none is told by its row of the batch, whatever the slices", "[nn][sliced]") {
  auto copy   = instance<tiny::Small>(Cpu::with_threads(4));
  auto batch  = tiny::batch<int>(32, 64, 1);
  batch.y[29] = 7;
  CHECK_THROWS_WITH(copy.value_and_gradient(batch.view(), 0, LooksAtEnd{}, Together{}),
                    Catch::Contains("row 29 of the batch has label 7"));
}

TEST_CASE("what is thrown when gradients are final reaches the caller, and the next step works", "[nn][sliced]") {
  auto copy        = instance<tiny::Small>(Cpu::with_threads(3));
  auto const batch = tiny::batch<int>(32, 64, 1);
  auto calls       = 0;
  CHECK_THROWS_AS(copy.value_and_gradient(
                      batch.view(), 0,
                      [&](std::size_t) {
                        if (++calls == 2) throw PeerLost{1, "rank 1 is gone"};
                      },
                      Together{}),
                  PeerLost);
  CHECK(calls == 2);
  CHECK(copy.value_and_gradient(batch.view(), 0, LooksAtEnd{}, Together{}).count == 32);
}
