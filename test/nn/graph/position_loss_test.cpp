// SPDX-License-Identifier: Apache-2.0
//
// loss::per_position: the mean over all positions of all rows, however these are dealt out.
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/strategy/sharded.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace position_loss_test {

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

struct Text : Field<int, ragged> {};
struct Next : Field<int, ragged> {};
struct Points : Field<float, ragged, 3> {};
struct Share : Field<float, ragged> {};
struct Weight : Field<float, 1> {};
struct Line : Field<int, 19> {};
struct LineNext : Field<int, 19> {};
struct LinePoints : Field<float, 19, 3> {};

/// Each position by itself, so that it does not matter in which row it is.
template <class In, class Out, int width = 11> struct Net : nn::Graph<In> {
  nn::Embedding<11, 6, nn::DenseGradient> table;
  nn::Dense<8> wide;
  nn::Dense<width> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(last(nn::tanh(wide(table(x))))); }
};
struct Other : Field<int, ragged> {};
struct Both : nn::Graph<Text> {
  nn::Embedding<11, 6, nn::DenseGradient> table;
  nn::Dense<11> next, other;
  constexpr auto operator()(auto x) const {
    auto const y = nn::tanh(table(x));
    return nn::outputs<Next, Other>(next(y), other(y));
  }
};
struct Bits : nn::Graph<Text> {
  nn::Embedding<11, 6, nn::DenseGradient> table;
  nn::Dense<1> last;
  constexpr auto operator()(auto x) const { return nn::outputs<Share>(nn::reshape<>(last(table(x)))); }
};

std::vector<int> const all_words{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
std::vector<int> const all_next{1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4};
std::vector<std::size_t> const lengths{1, 9, 2, 7};

/// Labels, of which those of some positions do not count.
std::vector<int> some_next(bool leaves_out) {
  auto made = all_next;
  for (std::size_t i = 0; i < made.size() && leaves_out; ++i)
    if (i % 4 == 1 || i == 0) made[i] = -100;  // the row of one position has none then
  return made;
}
template <class T> std::vector<std::vector<T>> in_rows(std::vector<T> const& all, std::size_t each = 1) {
  auto rows = std::vector<std::vector<T>>{};
  auto at   = all.begin();
  for (auto const n : lengths) {
    rows.emplace_back(at, at + static_cast<std::ptrdiff_t>(n * each));
    at += static_cast<std::ptrdiff_t>(n * each);
  }
  return rows;
}
std::vector<float> numbers(std::size_t n) {
  auto made = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) made[i] = Random{Seed{4}, 1}.uniform(i);
  return made;
}
auto texts(bool leaves_out) {
  return data::from_fields<Text, Next, Points, Share, Weight>(
      in_rows(all_words), in_rows(some_next(leaves_out)), in_rows(numbers(57), 3), in_rows(numbers(19)), numbers(4));
}
auto lines(bool leaves_out) {
  return data::from_fields<Line, LineNext, LinePoints>(all_words, some_next(leaves_out), numbers(57));
}

auto const counts = loss::per_position(loss::SparseCrossEntropy{}).ignore_label(-100);
auto const rule   = optim::SGD{.learning_rate = 0.5F, .momentum = 0.5F};
auto const one    = OneDeviceStrategy{Cpu::logical(1)[0]};

std::vector<float> values_of(auto& trainer) {
  auto const body = trainer.variables().body();
  return {body.begin(), body.end()};
}
double apart(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  auto most = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return static_cast<double>(most);
}

/// The mean over the positions that count, in double, of logits (19, 11).
double by_hand(Span<float const> logits, std::vector<int> const& labels) {
  auto sum = 0.0, count = 0.0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    auto z = 0.0;
    for (std::size_t c = 0; c < 11; ++c) z += std::exp(static_cast<double>(logits[11 * i + c]));
    sum += std::log(z) - static_cast<double>(logits[11 * i + static_cast<std::size_t>(labels[i])]);
    count += 1;
  }
  return sum / count;
}

template <class S, class R = RingAllReduce> auto reader(S strategy, R reduce = {}) {
  auto const model = nn::compile<Net<Text, Next>>(counts, rule, metric::Perplexity{.ignore_label = -100});
  return Trainer{model, strategy, reduce, LocalTransport{}, 7};
}
auto of_lines() {
  auto const model = nn::compile<Net<Line, LineNext>>(counts, rule, metric::Perplexity{.ignore_label = -100});
  return Trainer{model, one, RingAllReduce{}, LocalTransport{}, 7};
}
FitOptions const quietly{.epochs = 3, .show = Show::nothing};

}  // namespace

TEST_CASE("the mean is over all positions that count, for any split into batches", "[nn][graph][positions]") {
  for (bool const leaves_out : {false, true}) {
    auto trainer      = reader(one);
    auto const logits = trainer.predict(texts(leaves_out).batch(4));
    auto const want   = by_hand(logits.values, some_next(leaves_out));
    for (int const batch : {1, 2, 3, 4, 9}) {
      auto const scores = trainer.evaluate(texts(leaves_out).batch(batch));
      CHECK(scores.rows() == 4);
      CHECK(scores.loss() == Approx(want).epsilon(1e-6));
      CHECK(scores["perplexity"] == Approx(std::exp(want)).epsilon(1e-6));
    }
    auto dense = of_lines();
    CHECK(dense.evaluate(lines(leaves_out).batch(1)).loss() == Approx(want).epsilon(1e-6));
    auto rows_alone = Trainer{nn::compile<Net<Text, Next>>(loss::SparseCrossEntropy{}, rule), one, RingAllReduce{},
                              LocalTransport{}, 7};
    if (!leaves_out) CHECK(std::abs(rows_alone.evaluate(texts(false).batch(4)).loss() - want) > 1e-4);
  }
}

TEST_CASE("training with it does not depend on rows, batches, replicas and strategies", "[nn][graph][positions]") {
  auto const leaves_out = GENERATE(false, true);
  auto dense            = of_lines();
  auto const first      = dense.fit(lines(leaves_out).batch(1), quietly);
  auto const want       = values_of(dense);
  auto const check      = [&](auto trainer, int batch = 4, int accumulate = 1) {
    auto options       = quietly;
    options.accumulate = accumulate;
    auto const history = trainer.fit(texts(leaves_out).batch(batch), options);
    CHECK(apart(values_of(trainer), want) < 2e-6);
    for (std::size_t i = 0; i < history.size(); ++i) {
      CHECK(history[i].scores.loss() == Approx(first[i].scores.loss()).epsilon(1e-6));
      CHECK(history[i].scores["perplexity"] == Approx(std::exp(history[i].scores.loss())).epsilon(1e-5));
    }
  };
  check(reader(one));
  check(reader(one), 2, 2);
  check(reader(one), 1, 4);
  for (int const replicas : {2, 3, 5}) check(reader(MirroredStrategy{Cpu::logical(replicas)}));
  check(reader(MirroredStrategy{Cpu::logical(2)}), 2, 2);
  check(reader(MirroredStrategy{Cpu::logical(3)}, Reproducible<4>{}));
  check(reader(CentralStorageStrategy{Cpu::logical(2)}));
  check(reader(ShardedStrategy<Zero::one>{Cpu::logical(2)}));
  check(reader(ShardedStrategy<Zero::three>{Cpu::logical(3)}));
}

TEST_CASE("workers of servers divide by positions, too", "[nn][graph][positions]") {
  auto dense = of_lines();
  dense.fit(lines(true).batch(1), quietly);
  auto served = reader(ParameterServerStrategy{Cluster::local(2, 1), Synchronous{}});
  served.fit(texts(true).batch(4), quietly);
  CHECK(apart(values_of(served), values_of(dense)) < 2e-6);
}

TEST_CASE("under Reproducible the bits do not depend on the replicas", "[nn][graph][positions]") {
  auto const hash = [](int replicas) {
    auto trainer = reader(MirroredStrategy{Cpu::logical(replicas)}, Reproducible<4>{});
    trainer.fit(texts(true).batch(4), quietly);
    return trainer.hashes()[0];
  };
  for (int const replicas : {2, 3, 4}) CHECK(hash(replicas) == hash(1));
}

TEST_CASE("micro-batches of a pipeline count positions", "[nn][graph][positions]") {
  auto const words = [] {
    auto made = std::vector<int>{};
    for (int row = 0; row < 8; ++row) made.insert(made.end(), all_words.begin(), all_words.end());
    return made;
  }();
  auto next = words;
  for (std::size_t i = 0; i < next.size(); ++i) next[i] = i * i % 7 == 2 ? -100 : (next[i] * 3 + 1) % 11;
  auto const rows  = data::from_fields<Line, LineNext>(words, next);
  auto const model = nn::compile<Net<Line, LineNext>>(counts, rule);
  auto whole       = Trainer{model, one, RingAllReduce{}, LocalTransport{}, 7};
  auto const mesh  = MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()};
  auto stages      = Trainer{model, mesh, RingAllReduce{}, LocalTransport{}, 7};
  auto const want = whole.fit(rows.batch(8), quietly), got = stages.fit(rows.batch(8), quietly);
  for (std::size_t i = 0; i < want.size(); ++i)
    CHECK(got[i].scores.loss() == Approx(want[i].scores.loss()).epsilon(1e-6));
  CHECK(stages.evaluate(rows.batch(3)).loss() == Approx(whole.evaluate(rows.batch(8)).loss()).epsilon(1e-6));
}

TEST_CASE("losses of numbers and of two classes have a mean over positions", "[nn][graph][positions]") {
  auto const check = [](auto const& loss) {
    auto const dense  = nn::compile<Net<Line, LinePoints, 3>>(loss, rule);
    auto const ragged = nn::compile<Net<Text, Points, 3>>(loss::per_position(loss), rule);
    auto a            = Trainer{dense, one, RingAllReduce{}, LocalTransport{}, 7};
    auto b            = Trainer{ragged, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 7};
    auto const want = a.fit(lines(false).batch(1), quietly), got = b.fit(texts(false).batch(4), quietly);
    CHECK(got.back().scores.loss() == Approx(want.back().scores.loss()).epsilon(1e-6));
    CHECK(apart(values_of(a), values_of(b)) < 2e-6);
    CHECK(b.evaluate(texts(false).batch(3)).loss() == Approx(a.evaluate(lines(false).batch(1)).loss()).epsilon(1e-6));
    auto whole = Trainer{nn::compile<Net<Line, LinePoints, 3>>(loss::per_position(loss), rule), one, RingAllReduce{},
                         LocalTransport{}, 7};
    whole.fit(lines(false).batch(1), quietly);
    CHECK(apart(values_of(a), values_of(whole)) < 2e-6);
  };
  check(loss::MeanSquaredError{});
  check(loss::MeanAbsoluteError{});
  check(loss::BinaryCrossEntropy{});
  check(loss::CrossEntropy{});

  auto bits = Trainer{nn::compile<Bits>(loss::per_position(loss::BinaryCrossEntropy{}), rule), one, RingAllReduce{},
                      LocalTransport{}, 7};
  auto const logits = bits.predict(texts(false).batch(4));
  auto const wanted = numbers(19);
  auto want         = 0.0;
  for (std::size_t i = 0; i < 19; ++i) {
    auto const z = static_cast<double>(logits.values[i]);
    want += (std::log1p(std::exp(z)) - z * static_cast<double>(wanted[i])) / 19;
  }
  for (int const batch : {1, 3, 4})
    CHECK(bits.evaluate(texts(false).batch(batch)).loss() == Approx(want).epsilon(1e-6));
}

TEST_CASE("losses over positions of several outputs have one divisor", "[nn][graph][positions]") {
  auto const both  = nn::of<Next>(counts) + 0.25F * nn::of<Other>(counts);
  auto const model = nn::compile<Both>(both, rule, nn::of<Next>(metric::Perplexity{.ignore_label = -100}));
  auto const rows  = [](std::vector<int> const& other) {
    return data::from_fields<Text, Next, Other>(in_rows(all_words), in_rows(some_next(true)), in_rows(other));
  };
  auto same = some_next(true);
  for (int& label : same) label = label < 0 ? label : (label + 3) % 11;
  auto whole        = Trainer{model, one, RingAllReduce{}, LocalTransport{}, 7};
  auto cut          = Trainer{model, MirroredStrategy{Cpu::logical(3)}, RingAllReduce{}, LocalTransport{}, 7};
  auto const logits = whole.predict(rows(same).batch(4));  // (19, 11 + 11), rows one after another
  auto first = std::vector<float>{}, second = first;
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t i = 0; i < 2 * 11 * lengths[r]; ++i)
      (i < 11 * lengths[r] ? first : second).push_back(logits[r][i]);
  auto const a = by_hand(first, some_next(true)), b = by_hand(second, same);
  for (int const batch : {1, 3, 4}) {
    auto const scores = whole.evaluate(rows(same).batch(batch));
    CHECK(scores.loss() == Approx(a + b / 4).epsilon(1e-6));
    CHECK(scores["next_loss"] == Approx(a).epsilon(1e-6));
    CHECK(scores["other_loss"] == Approx(b / 4).epsilon(1e-6));
    CHECK(scores["next_perplexity"] == Approx(std::exp(a)).epsilon(1e-6));
  }
  whole.fit(rows(same).batch(4), quietly), cut.fit(rows(same).batch(4), quietly);
  CHECK(apart(values_of(whole), values_of(cut)) < 2e-6);
  CHECK_THROWS_WITH(whole.evaluate(rows(all_next).batch(4)),
                    Contains("losses over positions have one divisor, but of a batch the first counts 13 positions and "
                             "that of") &&
                        Contains("Other 19"));
}

TEST_CASE("weights of rows and classes multiply losses, and the number of positions stays", "[nn][graph][positions]") {
  auto const plain = nn::of<Next>(counts);
  auto base        = reader(one);
  auto weighted = Trainer{nn::compile<Net<Text, Next>>(0.5F * plain.weighted_by(Weight{}), rule), one, RingAllReduce{},
                          LocalTransport{}, 7};
  auto const logits = base.predict(texts(true).batch(4));
  auto const labels = some_next(true);
  auto sum = 0.0, count = 0.0;
  for (std::size_t r = 0, i = 0; r < lengths.size(); ++r)
    for (auto const end = i + lengths[r]; i < end; ++i) {
      if (labels[i] < 0) continue;
      sum += 0.5 * static_cast<double>(numbers(4)[r]) *
             by_hand(Span<float const>{logits.values}.subspan(11 * i, 11), {labels[i]});
      count += 1;
    }
  for (int const batch : {1, 4})
    CHECK(weighted.evaluate(texts(true).batch(batch)).loss() == Approx(sum / count).epsilon(1e-6));
  auto const classes = loss::Weighted{loss::SparseCrossEntropy{}, std::vector<float>(11, 2)};
  auto twice = Trainer{nn::compile<Net<Text, Next>>(loss::per_position(classes, loss::ignore_label(-100)), rule), one,
                       RingAllReduce{}, LocalTransport{}, 7};
  CHECK(twice.evaluate(texts(true).batch(4)).loss() ==
        Approx(2 * base.evaluate(texts(true).batch(4)).loss()).epsilon(1e-6));
}

TEST_CASE("rows of a Sequential whose label is ignored do not count, and loops of one's own see positions",
          "[nn][graph][positions]") {
  struct Rows : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};
  auto const x = numbers(4 * 6);
  auto y = std::vector<int>{0, -1, 2, 1, -1, 0}, kept_y = std::vector<int>{0, 2, 1, 0};
  auto kept_x = std::vector<float>{};
  for (std::size_t i = 0; i < 6; ++i)
    if (y[i] >= 0)
      kept_x.insert(kept_x.end(), x.begin() + static_cast<std::ptrdiff_t>(4 * i),
                    x.begin() + static_cast<std::ptrdiff_t>(4 * i + 4));
  auto const ignores = loss::per_position(loss::SparseCrossEntropy{}, loss::ignore_label(-1));
  auto some          = Trainer{nn::compile<Rows>(ignores, rule), MirroredStrategy{Cpu::logical(2)}, RingAllReduce{},
                      LocalTransport{}, 7};
  auto kept = Trainer{nn::compile<Rows>(loss::SparseCrossEntropy{}, rule), one, RingAllReduce{}, LocalTransport{}, 7};
  some.fit(data::from_tensors(x, y, 4).batch(6), quietly);
  kept.fit(data::from_tensors(kept_x, kept_y, 4).batch(4), quietly);
  CHECK(apart(values_of(some), values_of(kept)) < 1e-6);
  CHECK(some.evaluate(data::from_tensors(x, y, 4).batch(5)).loss() ==
        Approx(kept.evaluate(data::from_tensors(kept_x, kept_y, 4).batch(4)).loss()).epsilon(1e-6));
  auto copy        = nn::compile<Rows>(ignores, rule).instantiate(Cpu{}, 3);
  auto const batch = BasicBatch<float, int>{.x = x, .y = y, .rows = 6};
  auto const loss  = copy.value_and_gradient(batch, 0, [](std::size_t) {}, Together{});
  CHECK(loss.count == 4);
  CHECK(copy.gradients().counted() == 4);
  CHECK(copy.gradients().rows() == 6);

  auto none        = Trainer{nn::compile<Rows>(ignores, optim::SGD{}), one, RingAllReduce{}, LocalTransport{}, 7};
  auto const first = values_of(none);  // nothing counts, and no number changes
  std::ranges::fill(y, -1);
  CHECK(none.fit(data::from_tensors(x, y, 4).batch(6), quietly).back().scores.loss() == 0);
  CHECK(values_of(none) == first);
  y[3] = 3;
  CHECK_THROWS_WITH(some.evaluate(data::from_tensors(x, y, 4).batch(6)), Contains("has label 3"));
}

TEST_CASE("gradients of losses over positions agree with central differences", "[nn][graph][positions]") {
  auto const check = [](auto const& loss, auto const& wanted) {
    auto y = numbers(6 * 4), d = std::vector<float>(24, 7.0F), unused = d;
    for (auto& x : y) x = 2 * x - 1;
    loss::sum_of<Cpu>(loss, 6, 4, y.data(), wanted.data(), d.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      auto const keep = y[i];
      auto const at   = [&](float x) {
        y[i] = x;
        return loss::sum_of<Cpu>(loss, 6, 4, y.data(), wanted.data(), unused.data());
      };
      auto const slope = (at(keep + 4e-3F) - at(keep - 4e-3F)) / 8e-3F;
      y[i]             = keep;
      CHECK(d[i] == Approx(slope).epsilon(0.01).margin(1e-3));
    }
  };
  auto const labels = std::vector<int>{-7, 0, -7, -7, 3, 1};
  check(loss::per_position(loss::SparseCrossEntropy{}).ignore_label(-7), labels);
  check(loss::per_position(loss::SparseCrossEntropy{.label_smoothing = 0.2F}, loss::ignore_label(-7)), labels);
  check(loss::per_position(loss::BinaryCrossEntropy{}), numbers(24));
  CHECK(loss::per_position(loss::SparseCrossEntropy{}).ignore_label(-7).counted(6, 4, labels.data()) == 3);
}

}  // namespace position_loss_test
