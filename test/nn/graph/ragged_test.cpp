// SPDX-License-Identifier: Apache-2.0
//
// Networks whose inputs have rows of different lengths: training, predictions and mistakes.
#include "test/nn/graph/ragged_rows.hpp"
#include "test/support/count_allocations.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ragged_test {

using namespace chorale;
using namespace chorale::test::ragged_rows;
using chorale::test::allocations;
using Catch::Matchers::Contains;

namespace {

struct Classifier : nn::Graph<Words> {
  nn::Embedding<30, 6> words;
  nn::LSTM<8> reader;
  nn::Dense<2> head;

  constexpr auto operator()(auto x) const { return nn::outputs<Label>(head(nn::Dropout<10>{}(reader(words(x))))); }
};

struct Tagger : nn::Graph<Words> {
  nn::Embedding<30, 6> words;
  nn::LSTM<8, nn::Sequences> reader;
  nn::Dense<3> head;

  constexpr auto operator()(auto x) const { return nn::outputs<Tags>(head(reader(words(x)))); }
};

/// A network without kernels of oneDNN, which allocate in each call.
template <class F, int Rows> struct Bag : nn::Graph<F> {
  nn::Embedding<Rows, 2> words;
  nn::EmbeddingBag<Rows, 2> bag;
  nn::LayerNorm norm;

  constexpr auto operator()(auto x) const {
    return nn::outputs<Label>(nn::GlobalAveragePool1D{}(norm(words(x) * words(x))) + bag(x));
  }
};

auto classifier() {
  return nn::compile<Classifier>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = 1e-2F}, metric::Accuracy{});
}
auto tagger() {
  return nn::compile<Tagger>(nn::of<Tags>(loss::SparseCrossEntropy{}).weighted_by(Weight{}),
                             optim::Adam{.learning_rate = 1e-2F}, metric::Accuracy{});
}

/// The variables after two epochs, and their hash.
template <class M, class R>
std::pair<std::vector<float>, std::uint64_t> trained(M const& model, R reduce, int replicas) {
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(replicas)}, reduce, LocalTransport{}, 3};
  trainer.fit(rows(61).shuffle(61).batch(16), {.epochs = 2, .show = Show::nothing});
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  auto all = std::vector<float>{};
  for (std::size_t i = 0; i < trainer.variables().size(); ++i)
    all.insert(all.end(), trainer.variables()[i].value.begin(), trainer.variables()[i].value.end());
  return {all, trainer.hashes()[0]};
}

}  // namespace

TEST_CASE("replicas train with ragged rows as one does", "[nn][graph][ragged]") {
  auto const check = [](auto const& model) {
    auto const one = trained(model, RingAllReduce{}, 1).first;
    for (int replicas : {2, 3}) {
      auto const got = trained(model, RingAllReduce{}, replicas).first;
      auto largest   = 0.0F;
      for (std::size_t i = 0; i < one.size(); ++i) largest = std::max(largest, std::abs(got[i] - one[i]));
      CHECK(largest < 2e-4F);
    }
    auto const hash = trained(model, Reproducible{}, 1).second;
    for (int replicas : {2, 3, 4}) CHECK(trained(model, Reproducible{}, replicas).second == hash);
  };
  check(everything());
  check(tagger());
}

TEST_CASE("an LSTM learns from text of any length, in buckets", "[nn][graph][ragged]") {
  auto const buckets = data::Buckets{.boundaries = {4, 9}, .rows = {40, 32, 17}};
  auto trainer       = Trainer{classifier(), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 3};
  trainer.fit(rows(300).shuffle(300).bucket_by_sequence_length(Words{}, buckets).prefetch(2),
              {.epochs = 25, .show = Show::nothing});
  CHECK(trainer.evaluate(rows(300).batch(50))["accuracy"] > 0.97);
}

TEST_CASE("the loss of a row is the mean over its positions", "[nn][graph][ragged]") {
  auto copy = tagger().instantiate(Cpu::logical(1)[0], 1);
  first(rows(20).batch(20), [&](auto const& batch) {
    auto const y = kept(copy.predict(batch));
    auto want = 0.0, right = 0.0;
    auto const* z = y.data();
    for (std::size_t r = 0; r < batch.rows; ++r) {
      auto const tags = batch.unpadded(Tags{}, r);
      for (auto const tag : tags) {
        auto sum = 0.0;
        for (int c = 0; c < 3; ++c) sum += std::exp(static_cast<double>(z[c]));
        want += (std::log(sum) - static_cast<double>(z[tag])) * static_cast<double>(batch[Weight{}][r]) /
                static_cast<double>(tags.size());
        right += (std::max_element(z, z + 3) - z == tag ? 1.0 : 0.0) / static_cast<double>(tags.size());
        z += 3;
      }
    }
    REQUIRE(z == y.data() + y.size());
    auto sums = std::array<float, plan::header>{};
    copy.evaluate(batch, sums);
    CHECK(static_cast<double>(StepHeader<float>{sums}.loss()) == Approx(want).epsilon(1e-5));
    CHECK(static_cast<double>(StepHeader<float>{sums}.metric(0)) == Approx(right).epsilon(1e-5));
  });
}

TEST_CASE("predictions of ragged outputs have no padding", "[nn][graph][ragged]") {
  auto trainer = Trainer{tagger(), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 3};
  trainer.fit(rows(200).shuffle(200).batch(32), {.epochs = 20, .show = Show::nothing});
  auto const predicted = trainer.predict(rows(23).batch(7));
  REQUIRE(predicted.rows() == 23);
  first(rows(23).batch(23), [&](auto const& batch) {
    auto right = 0, all = 0;
    for (std::size_t r = 0; r < 23; ++r) {
      auto const tags = batch.unpadded(Tags{}, r);
      REQUIRE(predicted[r].size() == 3 * tags.size());
      for (std::size_t i = 0; i < tags.size(); ++i, ++all) {
        auto const z = predicted[r].subspan(3 * i, 3);
        right += std::ranges::max_element(z) - z.begin() == tags[i] ? 1 : 0;
      }
    }
    CHECK(right > 0.95 * all);
  });
}

TEST_CASE("bytes are ids, and an id outside the table is named", "[nn][graph][ragged]") {
  auto const of = []<class Net>(std::type_identity<Net>) {
    return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}).instantiate(Cpu::logical(1)[0], 1);
  };
  auto fits  = of(std::type_identity<Bag<Letters, 128>>{});
  auto small = of(std::type_identity<Bag<Letters, 110>>{});
  first(rows(20).batch(20), [&](auto const& batch) {
    auto row = std::size_t{0}, at = row;
    while (batch.unpadded(Letters{}, row).empty() || std::ranges::max(batch.unpadded(Letters{}, row)) < 110) ++row;
    auto const letters = batch.unpadded(Letters{}, row);
    while (letters[at] < 110) ++at;
    CHECK(fits.predict(batch).size() == 40);
    auto const message = "row " + std::to_string(row) + " of the batch has id " + std::to_string(letters[at]) +
                         " at position " + std::to_string(at) + " of field test::ragged_rows::Letters" +
                         ", but the nn::Embedding that takes it has 110 rows";
    CHECK_THROWS_WITH(small.predict(batch), Contains(message));
  });
}

TEST_CASE("rows that do not fit are named", "[nn][graph][ragged]") {
  auto copy            = everything().instantiate(Cpu::logical(1)[0], 1);
  auto const long_rows = data::from_tensors(std::vector<float>(2), std::vector<float>(2), 1)
                             .map<Vectors, Wanted>([](auto const&, auto& to, data::Place place) {
                               to[Vectors{}].assign(place.row == 1 ? 6 * 41 : 6, 0.0F), to[Wanted{}].assign(2, 0.0F);
                             })
                             .batch(2);
  first(long_rows, [&](auto const& batch) {
    CHECK_THROWS_WITH(copy.predict(batch),
                      Contains("row 1 of the batch has 41 positions, but nn::Positions has vectors for 40"));
  });
  auto of_tags     = tagger().instantiate(Cpu::logical(1)[0], 1);
  auto const apart = data::from_tensors(std::vector<float>(2), std::vector<float>(2), 1)
                         .map<Words, Tags, Weight>([](auto const&, auto& to) {
                           to[Words{}].assign(3, 1), to[Tags{}].assign(2, 0), to[Weight{}].assign(1, 1.0F);
                         })
                         .batch(2);
  first(apart, [&](auto const& batch) {
    CHECK_THROWS_WITH(of_tags.value_and_gradient(batch, 0, LooksAtEnd{}),
                      Contains("row 0 of the batch has length 2 for field") && Contains("has length 3"));
  });
}

TEST_CASE("a step allocates nothing once batches with as many positions came", "[nn][graph][ragged]") {
  auto copy = nn::compile<Bag<Words, 30>>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{})
                  .instantiate(Cpu::logical(1)[0], 1);
  auto const of_a_pass = [&] {
    auto stream   = rows(96).batch(16).stream(0);
    auto batch    = decltype(rows(1).batch(16))::element{};
    auto in_steps = 0;
    for (int step = 0; step < 6; ++step) {
      REQUIRE(stream.next(batch));
      auto const before = allocations;
      copy.value_and_gradient(batch, 0, LooksAtEnd{});
      copy.optimizer.apply(copy.net.variables(), copy.gradients());
      in_steps += allocations - before;
    }
    return in_steps;
  };
  CHECK(of_a_pass() > 0);
  CHECK(of_a_pass() == 0);
}

}  // namespace ragged_test
