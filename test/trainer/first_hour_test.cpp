// SPDX-License-Identifier: Apache-2.0
//
// What a program of the first hour may write: labels of any integer type, arguments in any order, callbacks without
// options; and what it gets wrong when it runs is one sentence. Mistakes that the compiler sees are in
// test/compile_fail/first_hour.
#include "test/support/folder.hpp"
#include "test/support/tiny.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

using namespace chorale;
using Catch::Contains;

namespace first_hour_test {

struct Net : nn::Sequential<nn::Input<4>, nn::Dense<3>> {};

struct Point : Field<float, 4> {};
struct Kind : Field<int, 1> {};
struct NamedNet : nn::Graph<Point> {
  nn::Dense<3> kind;
  constexpr auto operator()(auto point) const { return nn::outputs<Kind>(kind(point)); }
};

struct Counts {
  int& to;
  void on_epoch_end(auto&, int, Epoch&) const { ++to; }
};

inline auto const quietly = FitOptions{.epochs = 2, .show = Show::nothing};

template <class Label> std::vector<Label> labels() {
  auto all = std::vector<Label>(12);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Label>(i * 7 % 3);
  return all;
}
template <class Label> auto rows(std::vector<Label> y = labels<Label>()) {
  return data::from_tensors(tiny::batch<int>(12, 4, 1).x, std::move(y), 4).batch(5);
}

/// What training of a model and asking it gives, in bits.
template <class Model, class Data> auto trained(Model const& model, Data const& data) {
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(2)}};
  trainer.fit(data, quietly);
  auto text = std::ostringstream{};
  text << std::hexfloat << trainer.hashes()[0] << ' ' << trainer.evaluate(data);
  for (float const y : trainer.predict(data).values) text << ' ' << y;
  return text.str();
}

auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{},
                                    metric::TopKAccuracy<2>{}, metric::MeanIoU<3>{});

TEST_CASE("labels of any integer type train, evaluate and predict as int does, to the bit", "[trainer][first_hour]") {
  auto const as_int = trained(model, rows<int>());
  CHECK(trained(model, rows<std::int64_t>()) == as_int);
  CHECK(trained(model, rows<std::uint8_t>()) == as_int);
  CHECK(trained(model, rows<std::uint64_t>().prefetch(2)) == as_int);
  auto const mapped = data::from_tensors(tiny::batch<int>(12, 4, 1).x, labels<int>(), 4)
                          .map<float, std::int64_t>([](auto const& row, auto& x, auto& y) {
                            x.assign(row.x.begin(), row.x.end());
                            y.assign(row.y.begin(), row.y.end());
                          });
  CHECK(trained(model, mapped.batch(5)) == as_int);

  auto const probabilities = [](auto const& data) {
    return trained(nn::compile<Net>(loss::Weighted{loss::SparseCrossEntropy{}, {1, 2, 3}}, optim::SGD{}), data);
  };
  CHECK(probabilities(rows<std::int64_t>()) == probabilities(rows<int>()));

  auto const named = [](auto y) {
    return trained(nn::compile<NamedNet>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                   data::from_fields<Point, Kind>(tiny::batch<int>(12, 4, 1).x, std::move(y)).batch(5));
  };
  CHECK(named(labels<std::int64_t>()) == named(labels<int>()));
}

TEST_CASE("scale takes pixels with labels of any integer type", "[trainer][first_hour]") {
  auto const pixels = std::vector<std::uint8_t>{0, 255, 51, 102};
  auto row          = Sample<float, int>{};
  auto stream       = data::from_tensors(pixels, std::vector<std::int64_t>{7, 2}, 2).map(data::scale).stream(0);
  CHECK(stream.next(row));
  CHECK(stream.next(row));
  CHECK(row.x[0] == 0.2F);
  CHECK(row.y[0] == 2);
}

TEST_CASE("a label that is no class, or no int, is one sentence", "[trainer][first_hour]") {
  auto trainer      = Trainer{model, MirroredStrategy{Cpu::logical(2)}};
  auto const before = trainer.hashes();
  auto const with   = [](auto label) {
    auto y = labels<decltype(label)>();
    y[2]   = label;
    return rows(y);
  };
  CHECK_THROWS_WITH(trainer.fit(with(3), quietly), Contains("has label 3, but the network has outputs for 0 to 2"));
  CHECK_THROWS_WITH(trainer.fit(with(std::int64_t{-1}), quietly), Contains("has label -1, but the network"));
  CHECK_THROWS_WITH(trainer.fit(with(std::int64_t{1} << 40), quietly),
                    Contains("label 1099511627776 is beyond what an int has"));
  CHECK_THROWS_AS(trainer.evaluate(with(std::int64_t{1} << 40)), BadArgument);
  CHECK(trainer.hashes() == before);
}

TEST_CASE("loss, optimizer and metrics come in any order", "[trainer][first_hour]") {
  auto const data  = rows<int>();
  auto const usual = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto const keras = nn::compile<Net>(optim::Adam{}, loss::SparseCrossEntropy{}, metric::Accuracy{});
  auto const other = nn::compile<Net>(metric::Accuracy{}, optim::Adam{}, loss::SparseCrossEntropy{});
  CHECK(std::is_same_v<decltype(usual), decltype(keras)>);
  CHECK(trained(other, data) == trained(usual, data));
}

TEST_CASE("fit takes callbacks without options, and a Trainer a reduce without a transport", "[trainer][first_hour]") {
  auto seen    = 0;
  auto trainer = Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}};
  trainer.fit(rows<std::int64_t>(), Counts{seen});
  CHECK(seen == 1);
}

TEST_CASE("what is wrong with data and options is one sentence when it runs", "[trainer][first_hour]") {
  auto trainer      = Trainer{model, MirroredStrategy{Cpu::logical(2)}};
  auto const before = trainer.hashes();
  auto const nan    = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(data::mnist("absent", data::train),
                    Contains("absent: is not a folder.") && Contains("Try: the folder with MNIST's four files"));
  CHECK_THROWS_AS(trainer.load("absent.safetensors"), BadFile);
  CHECK_THROWS_AS(trainer.save("absent/file.safetensors"), BadFile);
  CHECK_THROWS_AS(trainer.fit(data::from_tensors(std::vector<float>{}, std::vector<int>{}, 4).batch(5), quietly),
                  BadArgument);
  CHECK_THROWS_AS(trainer.fit(data::from_tensors(std::vector<float>(12 * 5), labels<int>(), 5).batch(5), quietly),
                  BadArgument);  // rows of 5 numbers for a network of 4
  CHECK_THROWS_AS(data::from_tensors(std::vector<float>(13), labels<int>(), 4), BadArgument);
  CHECK_THROWS_WITH(data::digits(10, 1).batch(0), Contains("a batch needs at least one row, got 0"));
  CHECK_THROWS_WITH(trainer.fit(rows<int>(), {.epochs = -1}), Contains("FitOptions::epochs is -1"));
  CHECK_THROWS_AS(trainer.fit(data::from_tensors(std::vector<float>(12 * 4, nan), labels<int>(), 4).batch(5), quietly),
                  NumericFault);
  CHECK(trainer.hashes() == before);
  auto const history = trainer.fit(rows<int>(), quietly);  // and goes on
  CHECK(history.back().steps == 3);
  CHECK(trainer.fit(data::from_tensors(tiny::batch<int>(3, 4, 1).x, std::vector<int>(3), 4).batch(1'000), quietly)
            .back()
            .steps == 1);  // a batch that is larger than the data
}

}  // namespace first_hour_test
