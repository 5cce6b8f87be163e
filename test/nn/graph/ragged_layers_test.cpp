// SPDX-License-Identifier: Apache-2.0
//
// Layers over rows of different lengths: gradients, and bits that depend on the row alone.
#include "test/nn/graph/ragged_rows.hpp"

#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ragged_layers_test {

using namespace chorale;
using namespace chorale::test::ragged_rows;

namespace {

/// Everything but a layer after the reductions, whose rows oneDNN computes in groups.
struct Bare : nn::Graph<nn::Differentiable<Vectors>> {
  Body body;
  Reduced reduced;
  constexpr auto operator()(auto x) const {
    auto const y = body(x);
    return nn::outputs<States, Ends>(y, reduced(y));
  }
};

/// A head tied to the table of words.
struct Tied : nn::Graph<Words> {
  nn::Embedding<30, 6> words;
  nn::LSTM<6, nn::Sequences> reader;
  constexpr auto operator()(auto x) const { return nn::outputs<Words>(words.logits(reader(words(x)))); }
};

}  // namespace

TEST_CASE("gradients of layers over ragged rows are those of differences", "[nn][graph][ragged]") {
  using X = nn::Of<float, ragged, 6>;
  CHECK(nn::gradient_error<nn::Dense<4>, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::Softmax, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::LayerNorm, X>() < 4e-3);
  CHECK(nn::gradient_error<nn::Dropout<40>, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::CausalHeads<2>, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::Heads<2>, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::UnitNorm, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::LSTM<3>, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::LSTM<3, nn::Sequences>, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::Positions<5, 6>, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::GlobalAveragePool1D, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::GlobalMaxPool1D, X>() < 2e-3);
  CHECK(nn::gradient_error<nn::GlobalMaxPool1D, nn::Of<float, 4, 3>>() < 2e-3);
  CHECK(nn::gradient_error<nn::Embedding<3, 4>, nn::Of<std::uint8_t, ragged>>() < 2e-3);
  CHECK(nn::gradient_error<nn::EmbeddingBag<3, 4>, nn::Of<int, ragged>>() < 2e-3);
  CHECK(nn::network_gradient_error<Everything>() < 6e-3);
}

TEST_CASE("how wide a batch is padded changes no bit", "[nn][graph][ragged]") {
  auto copy        = everything().instantiate(Cpu::logical(1)[0], 1);
  auto const learn = [&](auto const& batches) {
    auto result = std::vector<float>{};
    first(batches, [&](auto const& batch) {
      copy.value_and_gradient(batch, 5, LooksAtEnd{});
      result = kept(copy.gradients().values);
      for (auto const d : copy.gradient_by(Vectors{})) result.push_back(d);
      for (auto const y : copy.predict(batch)) result.push_back(y);
    });
    return result;
  };
  auto const want = learn(rows(13).batch(13));
  CHECK(learn(rows(13).padded_batch(13, data::PaddingOf<Vectors>{.length = 37, .value = 1e30F})) == want);
  learn(rows(60).batch(60));  // and buffers of more positions
  learn(rows(40).batch(13));
  CHECK(learn(rows(13).batch(13)) == want);
}

TEST_CASE("a row among others is the row alone, to the bit", "[nn][graph][ragged]") {
  auto const model = nn::compile<Bare>(nn::of<States>(loss::Given{}) + nn::of<Ends>(loss::Given{}), optim::SGD{});
  auto copy        = model.instantiate(Cpu::logical(1)[0], 1);
  auto outputs = std::vector<float>{}, gradients = outputs;
  first(rows(45).batch(45), [&](auto const& batch) {
    outputs = kept(copy.predict(batch));
    copy.value_and_gradient(batch, 0, LooksAtEnd{});
    gradients = kept(copy.gradient_by(Vectors{}));
  });
  auto y_at = std::size_t{0}, d_at = y_at;
  for (std::size_t r = 0; r < 45; ++r)
    first(rows(45).skip(r).batch(1), [&](auto const& batch) {
      auto const length = static_cast<std::size_t>(batch.lengths(Vectors{})[0]);
      INFO("row " << r << " of length " << length);
      auto const y = kept(copy.predict(batch));
      REQUIRE(y.size() == 9 * length + 21);
      CHECK(std::ranges::equal(y, Span<float const>{outputs}.subspan(y_at, y.size())));
      copy.value_and_gradient(batch, r, LooksAtEnd{});  // dropout is that of row r
      auto const d = kept(copy.gradient_by(Vectors{}));
      REQUIRE(d.size() == 6 * length);
      CHECK(std::ranges::equal(d, Span<float const>{gradients}.subspan(d_at, d.size())));
      y_at += y.size(), d_at += d.size();
    });
  CHECK(y_at == outputs.size());
}

TEST_CASE("a head tied to a table takes ragged rows, each alone", "[nn][graph][ragged]") {
  CHECK(nn::network_gradient_error<Tied>() < 2e-3);
  auto copy    = nn::compile<Tied>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(Cpu::logical(1)[0], 1);
  auto outputs = std::vector<float>{}, alone = outputs;
  first(rows(45).batch(45), [&](auto const& batch) { outputs = kept(copy.predict(batch)); });
  for (std::size_t r = 0; r < 45; ++r)
    first(rows(45).skip(r).batch(1), [&](auto const& batch) {
      for (auto const y : copy.predict(batch)) alone.push_back(y);
    });
  CHECK(alone == outputs);
}

TEST_CASE("a batch of empty rows is a batch", "[nn][graph][ragged]") {
  auto copy = everything().instantiate(Cpu::logical(1)[0], 1);
  first(rows(45).filter([](auto const& row) { return row[Vectors{}].empty(); }).batch(3), [&](auto const& batch) {
    auto const y = copy.predict(batch);
    for (std::size_t i = 0; i < 6; ++i) CHECK(y[i] == y[i % 2]);  // the bias of the head
    auto const [loss, n] = copy.value_and_gradient(batch, 0, LooksAtEnd{});
    CHECK(std::isfinite(loss));
    CHECK(n == 3);
  });
}

}  // namespace ragged_layers_test
