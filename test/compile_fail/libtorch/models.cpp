// SPDX-License-Identifier: Apache-2.0
#include <chorale/libtorch/model.hpp>
#include <chorale/optim/sgd.hpp>

#include <array>
#include <memory>
#include <string_view>

using namespace chorale;

struct Line : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear{2, 1});
};
using Rows = BasicBatch<float, float>;

auto const make  = [] { return std::make_shared<Line>(); };
auto const error = [](auto& line, auto const& batch) {
  auto const y = line->layer(libtorch::tensor(batch.x, {-1, 2}));
  return torch::mse_loss(y, libtorch::tensor(batch.y, {-1, 1}), torch::Reduction::Sum);
};

auto model(auto make, auto loss) { return libtorch::model<Rows>(make, loss, optim::SGD{}); }

// expect (with <torch/torch.h>): compiles
auto made() {
  return model(make, [](std::shared_ptr<Line>& line, Rows const& batch) { return error(line, batch); });
}

// expect (with <torch/torch.h>): chorale: the first argument of libtorch::model is a function without parameters that makes a module
auto made() { return model(std::make_shared<Line>(), error); }

// expect (with <torch/torch.h>): chorale: the second argument of libtorch::model is called as loss(module, batch)
auto made() {
  return model(make, [](Rows const& batch, std::shared_ptr<Line>& line) { return error(line, batch); });
}

// expect (with <torch/torch.h>): chorale: the loss of libtorch::model gives a torch::Tensor, or, with metric_names, a std::array
struct Error {
  static constexpr std::array<std::string_view, 1> metric_names{"error"};

  auto operator()(std::shared_ptr<Line>& line, Rows const& batch) const { return error(line, batch); }
};
auto made() { return model(make, Error{}); }

// expect (with <torch/torch.h>): compiles
auto numbers(Span<float const> from) { return libtorch::tensor(from, {-1}); }

// expect (with <torch/torch.h>): chorale: libtorch::tensor takes float, double, int, std::int64_t and std::uint8_t
auto numbers(Span<short const> from) { return libtorch::tensor(from, {-1}); }
