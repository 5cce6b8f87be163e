// SPDX-License-Identifier: Apache-2.0
//
// Networks whose variables fit no number of ranks, and what one replica learns of them.
#pragma once

#include "test/strategy/sharded.hpp"

#include <optional>
#include <tuple>

namespace units_test {

using namespace chorale;

struct Numbers : Field<float, 7> {};
struct Ids : Field<int, 1> {};
struct Next : Field<int, 1> {};

/// Kernels (7, 15) and (15, 3), biases of which one is (5), and a table (16, 17) that is used forth and back.
struct OddNet : nn::Graph<Numbers, Ids> {
  nn::Embedding<16, 17> words;
  nn::Dense<15> wide;
  nn::Dense<3> narrow;
  nn::Dense<5> five;
  nn::Dense<17> joined;

  constexpr auto operator()(auto numbers, auto ids) const {
    auto const from_numbers = five(narrow(nn::tanh(wide(numbers))));
    return nn::outputs<Next>(words.logits(joined(nn::concatenate(from_numbers, nn::reshape<17>(words(ids))))));
  }
};

/// 20 batches of which most worlds get uneven shares, and some ranks none.
struct OddBatches {
  using element = Rows<Numbers, Ids, Next>;

  static constexpr std::size_t rows = 19 * 13 + 3;
  std::vector<float> x;
  std::vector<int> ids, next;

  OddBatches() : x(rows * 7), ids(rows), next(rows) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{5, 0}.uniform(i, -1, 1);
    for (std::size_t i = 0; i < rows; ++i) {
      ids[i]  = static_cast<int>(Random{5, 1}.below(i, 16));
      next[i] = static_cast<int>(Random{5, 2}.below(i, 16));
    }
  }
  struct Stream {
    OddBatches const* from;
    std::size_t i = 0, first = 0;

    bool next(element& batch) {
      if (i == 20) return false;
      auto const n = i++ == 3 ? std::size_t{3} : std::size_t{13};
      batch        = element{Span<float const>{from->x}.subspan(first * 7, n * 7),
                      Span<int const>{from->ids}.subspan(first, n), Span<int const>{from->next}.subspan(first, n)};
      first += n;
      return true;
    }
  };
  Stream stream(std::size_t /*epoch*/) const { return {this}; }
  std::optional<std::size_t> size() const { return 20; }
};

template <class O> auto odd_net(O optimizer) {
  return nn::compile<OddNet>(loss::SparseCrossEntropy{}, optimizer, metric::Accuracy{});
}

/// What a strategy learns of the data in 20 steps: the bits of all variables.
template <class Model, class S, class R, class T, class Data>
std::vector<float> learned(Model const& model, S strategy, R reduce, T transport, Data const& data) {
  auto trainer = Trainer{model, strategy, reduce, transport, 7};
  trainer.fit(data, tiny::quietly);
  return tiny::values_of(trainer);
}
template <class Model, class R, class Data> std::vector<float> on_one(Model const& model, R reduce, Data const& data) {
  return learned(model, OneDeviceStrategy{Cpu::logical(1)[0]}, reduce, LocalTransport{}, data);
}

}  // namespace units_test
