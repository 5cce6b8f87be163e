// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, residuals and normalizations in a network derived from nn::Graph, beside the same layers in a list.
#include "test/support/reference.hpp"
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

using namespace chorale;

namespace {

struct Image : Field<float, 8, 8, 1> {};
struct Kind : Field<int, 1> {};

template <template <class...> class Norm>
struct Listed
    : nn::Sequential<
          nn::Input<8, 8, 1>, nn::Conv2D<16, 3, nn::Same>, Norm<>, nn::ReLU,
          nn::Residual<nn::Conv2D<16, 3, nn::Same>, nn::ReLU, nn::Dropout<20>, nn::Conv2D<16, 3, nn::Same>>,
          nn::Residual<nn::Conv2D<24, 3, nn::Same, nn::Stride<2>>, nn::Shortcut<nn::Conv2D<24, 1, nn::Stride<2>>>>,
          nn::MaxPool2D<2>, nn::Flatten, nn::Dense<16>, Norm<>, nn::Tanh, nn::Dense<3>> {};

/// The layers of Listed, called one by one. Sums read what convolutions wrote, in the layout of these.
template <template <class...> class Norm> struct Called : nn::Graph<Image> {
  nn::Conv2D<16, 3, nn::Same> first;
  Norm<> norm;
  nn::Residual<nn::Conv2D<16, 3, nn::Same>, nn::ReLU, nn::Dropout<20>, nn::Conv2D<16, 3, nn::Same>> same;
  nn::Conv2D<24, 3, nn::Same, nn::Stride<2>> halved;
  nn::Conv2D<24, 1, nn::Stride<2>> shortcut;
  nn::Dense<16> dense;
  Norm<> last_norm;
  nn::Dense<3> kind;

  constexpr auto operator()(auto image) const {
    auto const x = same(nn::relu(norm(first(image))));
    auto const a = halved(x);  // before the shortcut: see docs/28-models.md
    auto const y = nn::Flatten{}(nn::MaxPool2D<2>{}(a + shortcut(x)));
    return nn::outputs<Kind>(kind(nn::Tanh{}(last_norm(dense(y)))));
  }
};

/// tiny::Batches, as rows of fields.
struct FieldBatches {
  using element = Rows<Image, Kind>;

  tiny::Batches<int> from;

  struct Stream {
    tiny::Batches<int>::Stream of;

    bool next(element& batch) {
      auto plain = BasicBatch<float, int>{};
      if (!of.next(plain)) return false;
      batch = element{plain.x, plain.y};
      return true;
    }
  };
  Stream stream(std::size_t epoch) const { return {from.stream(epoch)}; }
  std::optional<std::size_t> size() const { return from.size(); }
};

/// Batches of which some shares are uneven, and with 2 replicas and more some are empty.
tiny::Batches<int> uneven() {
  auto const sizes = std::vector<std::size_t>{16, 13, 2, 16, 3, 14, 1, 17, 29, 5};
  auto rows        = std::size_t{0};
  for (auto const n : sizes) rows += n;
  return {tiny::batch<int>(rows, 64, 1), sizes};
}

struct Learned {
  std::vector<float> values;
  std::vector<std::uint64_t> hashes;
  double loss;
};

template <class Net, class Data, class S, class T = LocalTransport>
Learned learned(Data const& data, S strategy, T transport = {}) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F}), strategy,
                         RingAllReduce{}, transport, 7};
  trainer.fit(data, FitOptions{.epochs = 2, .show = Show::nothing, .compare_every = 1});
  return {tiny::values_of(trainer), trainer.hashes(), trainer.evaluate(data).loss()};
}

double difference(Learned const& got, Learned const& wanted) {
  REQUIRE(got.values.size() == wanted.values.size());
  auto apart = 0.0, largest = 1e-12;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    apart   = std::max(apart, std::abs(static_cast<double>(got.values[i] - wanted.values[i])));
    largest = std::max(largest, std::abs(static_cast<double>(wanted.values[i])));
  }
  return apart / largest;
}

}  // namespace

TEST_CASE("a network of calls has the bits of the list of its layers", "[nn][graph]") {
  auto const wanted = learned<Listed<nn::BatchNorm>>(uneven(), OneDeviceStrategy{Cpu::with_threads(1)});
  auto const got    = learned<Called<nn::BatchNorm>>(FieldBatches{uneven()}, OneDeviceStrategy{Cpu::with_threads(1)});
  CHECK(got.loss == wanted.loss);
  CHECK(std::ranges::equal(got.values, wanted.values));
  for (int const threads : {2, 3}) {  // in slices of rows, which add up otherwise
    auto const sliced =
        learned<Called<nn::BatchNorm>>(FieldBatches{uneven()}, OneDeviceStrategy{Cpu::with_threads(threads)});
    CHECK(difference(sliced, wanted) < 1e-4);
  }
}

TEST_CASE("replicas of a network with SyncBatchNorm learn what one replica learns", "[nn][graph][sync]") {
  using Net           = Called<nn::SyncBatchNorm>;
  auto const replicas = GENERATE(2, 3);
  auto const data     = FieldBatches{uneven()};
  auto const one      = learned<Net>(data, OneDeviceStrategy{Cpu::logical(1)[0]});
  for (auto const& many : {learned<Net>(data, MirroredStrategy{Cpu::logical(replicas)}),
                           learned<Net>(data, MirroredStrategy{Cpu::logical(replicas)}, TcpTransport{})}) {
    CHECK(std::ranges::count(many.hashes, many.hashes[0]) == replicas);
    CHECK(difference(many, one) < 1e-5);
    CHECK(many.loss == Approx(one.loss).epsilon(1e-5));
  }
  auto const listed = learned<Listed<nn::SyncBatchNorm>>(uneven(), OneDeviceStrategy{Cpu::logical(1)[0]});
  CHECK(std::ranges::equal(one.values, listed.values));
}
