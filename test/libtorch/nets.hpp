// SPDX-License-Identifier: Apache-2.0
//
// Networks of libtorch, their data, and training without chorale to compare with.
#pragma once

#ifdef CHORALE_HAVE_LIBTORCH

#include <chorale/libtorch/model.hpp>
#undef CHECK  // c10 has a macro of this name, and Catch has another

#include <chorale/chorale.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace nets {

using namespace chorale;

/// Images (1, 8, 8) to three classes.
struct ConvImpl : torch::nn::Module {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3)};
  torch::nn::Linear dense{4 * 3 * 3, 16}, out{16, 3};

  ConvImpl() { register_module("conv", conv), register_module("dense", dense), register_module("out", out); }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv(x)), 2);  // (B, 1, 8, 8) -> (B, 4, 3, 3)
    return out(torch::relu(dense(x.flatten(1))));    // (B, 36) -> (B, 3)
  }
};
TORCH_MODULE(Conv);

/// Conv with batch normalization behind the convolution, whose statistics move by a tenth.
struct NormImpl : torch::nn::Module {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear out{4 * 3 * 3, 3};

  NormImpl() { register_module("conv", conv), register_module("norm", norm), register_module("out", out); }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm(conv(x))), 2);  // (B, 1, 8, 8) -> (B, 4, 3, 3)
    return out(x.flatten(1));                              // (B, 36) -> (B, 3)
  }
};
TORCH_MODULE(Norm);

/// The sum of cross entropies over the rows, and of right answers; outputs are logits.
template <class Net> struct Classify {
  static constexpr std::array<std::string_view, 1> metric_names{"accuracy"};
  static constexpr std::size_t output_width = 3;

  static torch::Tensor images(Batch const& batch) { return libtorch::tensor(batch.x, {-1, 1, 8, 8}); }
  static torch::Tensor labels(Batch const& batch) { return libtorch::tensor(batch.y, {-1}).to(torch::kLong); }

  std::array<torch::Tensor, 2> operator()(Net& net, Batch const& batch) const {
    auto const logits = net(images(batch));
    auto const right  = logits.argmax(1).eq(labels(batch)).sum();
    return {torch::nll_loss(logits.log_softmax(1), labels(batch), {}, at::Reduction::Sum), right};
  }
  torch::Tensor predict(Net& net, Batch const& batch) const { return net(images(batch)); }
};

/// A loss that is a plain function, without a metric.
template <class Net> torch::Tensor loss_of(Net& net, Batch const& batch) { return Classify<Net>{}(net, batch)[0]; }

inline optim::SGD rule() { return {.learning_rate = 0.1F}; }

template <class Net> auto model_of() {
  return libtorch::model<Batch>([] { return Net{}; }, Classify<Net>{}, rule());
}

/// 33 rows: batches of 8 end with one of a single row, which leaves replicas without one.
struct Rows {
  std::vector<float> x;
  std::vector<int> y;
};
inline Rows rows(std::size_t n = 33) {
  auto made = Rows{std::vector<float>(n * 64), std::vector<int>(n)};
  for (std::size_t i = 0; i < made.x.size(); ++i) made.x[i] = Random{5, 0}.uniform(i, -1, 1);
  for (std::size_t i = 0; i < n; ++i) {
    made.y[i] = static_cast<int>(i % 3);
    made.x[i * 64 + 9 * i % 3] += 2;
  }
  return made;
}
inline auto data(Rows const& from = rows()) { return data::from_tensors(from.x, from.y, 64).batch(8); }

/// The batches of 8 rows, one by one.
inline std::vector<Batch> batches(Rows const& from) {
  auto all     = std::vector<Batch>{};
  auto const n = from.y.size();
  for (std::size_t begin = 0; begin < n; begin += 8) {
    auto const count = std::min<std::size_t>(8, n - begin);
    all.push_back({.x    = Span<float const>{from.x}.subspan(begin * 64, count * 64),
                   .y    = Span<int const>{from.y}.subspan(begin, count),
                   .rows = count});
  }
  return all;
}

/// Trains a module with libtorch alone: its optimizer, its mean loss.
template <class Net> struct Pure {
  Net net = libtorch::made_with_seed([] { return Net{}; }, Seed{3});
  torch::optim::SGD optimizer{net->parameters(), 0.1};

  void step(Batch const& batch) {
    net->train();
    optimizer.zero_grad();
    (loss_of(net, batch) / static_cast<double>(batch.rows)).backward();
    optimizer.step();
  }
};

/// Largest difference between the tensors of a module, in the order of its variables, and the variables of a trainer.
template <class Net> double difference(Net const& net, Variables const& v) {
  auto largest     = 0.0;
  auto const found = libtorch::variables_of(*net);
  for (std::size_t i = 0; i < found.variables.size(); ++i) {
    auto const flat = found.variables[i].tensor.detach().to(torch::kFloat64).contiguous();
    for (std::size_t k = 0; k < v[i].value.size(); ++k)
      largest = std::max(largest, std::abs(flat.template data_ptr<double>()[k] - static_cast<double>(v[i].value[k])));
  }
  return largest;
}
inline double difference(std::vector<float> const& a, std::vector<float> const& b) {
  auto largest = a.size() == b.size() ? 0.0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

/// What a trainer has after two epochs: the variables of its first replica, and all hashes.
struct Trained {
  std::vector<float> values;
  std::vector<std::uint64_t> hashes;
};
template <class Model, class S, class R = RingAllReduce, class T = LocalTransport>
Trained trained(Model const& model, S strategy, R reduce = {}, T transport = {}) {
  auto trainer = Trainer{model, std::move(strategy), reduce, std::move(transport), 3};
  trainer.fit(data(), {.epochs = 2, .show = Show::nothing, .compare_every = 1});
  auto const body = trainer.variables().body();
  return {{body.begin(), body.end()}, trainer.hashes()};
}

}  // namespace nets

#endif
