// SPDX-License-Identifier: Apache-2.0
//
// Tiny models' worth of data: a batch of random numbers that owns its memory.
#pragma once

#include <chorale/chorale.hpp>

#include <cstddef>
#include <optional>
#include <type_traits>
#include <vector>

namespace tiny {

using namespace chorale;

template <class Y> struct OwnedBatch {
  std::vector<float> x;
  std::vector<Y> y;
  std::size_t rows, width, targets;

  BasicBatch<float, Y> view() const { return view(0, rows); }
  BasicBatch<float, Y> view(std::size_t first, std::size_t n) const {
    return {.x         = Span<float const>{x}.subspan(first * width, n * width),
            .y         = Span<Y const>{y}.subspan(first * targets, n * targets),
            .rows      = n,
            .first_row = first};
  }
};

/// x uniform in [-1, 1); labels 0 and 1 in turn, or targets uniform in [0, 1).
template <class Y> OwnedBatch<Y> batch(std::size_t rows, std::size_t width, std::size_t targets, Seed seed = 1) {
  auto made = OwnedBatch<Y>{std::vector<float>(rows * width), std::vector<Y>(rows * targets), rows, width, targets};
  for (std::size_t i = 0; i < made.x.size(); ++i) made.x[i] = Random{seed, 0}.uniform(i, -1, 1);
  for (std::size_t i = 0; i < made.y.size(); ++i) {
    if constexpr (std::is_integral_v<Y>) made.y[i] = static_cast<Y>(i % 2);
    else made.y[i] = Random{seed, 1}.uniform(i);
  }
  return made;
}

/// A dataset of batches of given sizes, cut from one OwnedBatch in order.
template <class Y> struct Batches {
  using element = BasicBatch<float, Y>;

  OwnedBatch<Y> rows;
  std::vector<std::size_t> sizes;

  struct Stream {
    Batches const* from;
    std::size_t i = 0, first = 0;

    bool next(element& batch) {
      if (i == from->sizes.size()) return false;
      batch           = from->rows.view(first, from->sizes[i]);
      batch.first_row = 0;  // a global batch begins with its row 0
      first += from->sizes[i++];
      return true;
    }
  };
  Stream stream(std::size_t /*epoch*/) const { return {this}; }
  std::optional<std::size_t> size() const { return sizes.size(); }
};

/// The CNN of the MNIST tutorial.
struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,         // (B, 28, 28,  1)
                              nn::Conv2D<32, 3>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,             // (B, 13, 13, 32)
                              nn::Flatten,                  // (B, 5408)
                              nn::Dense<64>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};            // (B, 10) logits

/// A network with one of everything that could tell replicas apart, and few numbers.
struct Small : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<4, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                              nn::Dense<16>, nn::Tanh, nn::Dropout<30>, nn::Dense<3>> {};

/// Small with Adam on so many replicas, which share the cores.
template <class R, class T = LocalTransport> auto trainer(int replicas, R reduce, T transport = {}) {
  return Trainer{nn::compile<Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                 MirroredStrategy{Cpu::logical(replicas)}, reduce, transport, 7};
}

}  // namespace tiny
