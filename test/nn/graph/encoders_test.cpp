// SPDX-License-Identifier: Apache-2.0
//
// Encoders under several replicas and workers, and a vision transformer that learns digits.
#include "test/support/encoder_nets.hpp"
#include "test/support/mnist.hpp"

#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace encoders_test {

using namespace chorale;
using namespace chorale::test::encoder_nets;

namespace {

struct Image : Field<float, 28, 28, 1> {};
struct Digit : Field<int, 1> {};
struct Ids : Field<int, ragged> {};
struct Vector : Field<float, 12> {};

struct Narrow : VisionTransformer<Image, Digit, 7, 16, 2, 8, 2, 16, 10> {};
struct Vision : VisionTransformer<Image, Digit, 7, 16, 2, 48, 4, 96, 10> {};
struct Encoder : SentenceEncoder<Ids, Vector, 2, 12, 3, 24, 30, 12> {};

/// Rows of images and digits, of rows of bytes.
auto as_fields(auto const& rows) {
  return rows.map(data::scale).template map<Image, Digit>([](auto const& row, auto& to) {
    to[Image{}].assign(row.x.begin(), row.x.end()), to[Digit{}].assign(row.y.begin(), row.y.end());
  });
}

/// Texts of 1 to 12 ids, and the vectors that they should become.
auto texts(std::size_t n) {
  auto ids = std::vector<std::vector<int>>(n);
  auto x   = std::vector<float>{};
  for (std::size_t r = 0; r < n; ++r) {
    auto const draw = Random{Seed{5}, r};
    for (std::uint64_t t = 0; t <= draw.below(0, 12); ++t) ids[r].push_back(static_cast<int>(draw.below(1 + t, 30)));
    for (std::uint64_t i = 0; i < 12; ++i) x.push_back(draw.uniform(50 + i, -1, 1));
  }
  return data::from_fields<Ids, Vector>(ids, x);
}

struct Trained {
  std::vector<float> values;
  std::vector<std::uint64_t> hashes;
};

/// The variables after two epochs of 37 rows in batches of 16: no number of replicas divides all of them.
template <class M, class D, class S, class R = RingAllReduce, class T = LocalTransport>
Trained trained(M const& model, D const& rows, S strategy, R reduce = {}, T transport = {}) {
  auto trainer = Trainer{model, std::move(strategy), std::move(reduce), std::move(transport), 3};
  trainer.fit(rows.batch(16), {.epochs = 2, .show = Show::nothing});
  auto all = std::vector<float>{};
  for (std::size_t i = 0; i < trainer.variables().size(); ++i)
    all.insert(all.end(), trainer.variables()[i].value.begin(), trainer.variables()[i].value.end());
  return {std::move(all), trainer.hashes()};
}

double difference(Trained const& a, Trained const& b) {
  REQUIRE(a.values.size() == b.values.size());
  for (auto const hash : a.hashes) CHECK(hash == a.hashes[0]);
  auto largest = 0.0;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    largest = std::max(largest, static_cast<double>(std::abs(a.values[i] - b.values[i])));
  return largest;
}

auto mirrored(int replicas) { return MirroredStrategy{Cpu::logical(replicas)}; }

/// Compares replicas and workers with one replica. Adam would divide what rounding leaves of the gradient by the bias of
/// keys by its size.
template <class Net, class Loss, class D, class T> void check(Loss loss, D const& rows, T transport) {
  auto const model = nn::compile<Net>(loss, optim::SGD{.learning_rate = 0.1F, .momentum = 0.9F});
  auto const one   = trained(model, rows, mirrored(1));
  auto const bits  = trained(model, rows, mirrored(1), Reproducible{});
  CHECK(difference(bits, one) < 1e-5);
  for (int replicas : {2, 3}) {
    CHECK(difference(trained(model, rows, mirrored(replicas)), one) < 1e-5);
    CHECK(trained(model, rows, mirrored(replicas), Reproducible{}).hashes[0] == bits.hashes[0]);
  }
  auto const workers = MultiWorkerMirroredStrategy{Cluster::local(2)};
  CHECK(difference(trained(model, rows, workers, RingAllReduce{}, transport), one) < 1e-5);
  CHECK(difference(trained(model, rows.take(16), mirrored(1)), one) > 1e-3);  // rows matter
}

}  // namespace

TEST_CASE("replicas and workers learn a vision transformer as one does", "[nn][graph][encoders]") {
  check<Narrow>(loss::SparseCrossEntropy{}, as_fields(data::digits(37, 1)).cache(), SharedMemoryTransport{});
}

TEST_CASE("replicas and workers learn an encoder of ragged texts as one does", "[nn][graph][encoders]") {
  check<Encoder>(loss::CosineSimilarity{}, texts(37), TcpTransport{});
}

namespace {

/// The accuracy of the second rows after some epochs of the first ones.
double accuracy_after(int epochs, auto const& rows, auto const& unseen) {
  auto const train = as_fields(rows).cache().shuffle(10'000, 1).batch(64);
  auto const steps = epochs * static_cast<int>(train.size().value());
  auto const rate  = optim::warm_up(steps / 10, 3e-3F).then(optim::cosine(steps, 3e-3F, 1e-5F));
  auto const adam  = optim::AdamW{.learning_rate = rate, .weight_decay = 0.05F, .global_clipnorm = 1};
  auto trainer     = Trainer{nn::compile<Vision>(loss::SparseCrossEntropy{}, adam, metric::Accuracy{}), mirrored(2),
                         RingAllReduce{}, LocalTransport{}, 1};
  trainer.fit(train, {.epochs = epochs, .show = Show::nothing});
  return trainer.evaluate(as_fields(unseen).batch(256))["accuracy"];
}

}  // namespace

TEST_CASE("a vision transformer learns drawn digits", "[nn][graph][encoders]") {
  auto const got = accuracy_after(5, data::digits(8'000, 1), data::digits(1'000, 1, 8'000));
  INFO(got);
  CHECK(got > 0.95);
}

TEST_CASE("a vision transformer learns MNIST", "[nn][graph][encoders][mnist]") {
  auto const folder = mnist::folder_or_skip("a vision transformer learns MNIST");
  if (!folder) return;
  auto const got = accuracy_after(2, data::mnist(*folder, data::train).take(10'000), data::mnist(*folder, data::test));
  INFO(got);
  CHECK(got > 0.9);
}

}  // namespace encoders_test
