// SPDX-License-Identifier: Apache-2.0
//
// What a module, a loss or a tensor must not be: each is one sentence.
#include "test/libtorch/nets.hpp"

#ifdef CHORALE_HAVE_LIBTORCH

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace chorale;
using Catch::Contains;

namespace {

/// A module with whatever a test registers.
struct Any : torch::nn::Module {
  explicit Any(std::function<void(Any&)> const& fill) { fill(*this); }
  torch::Tensor a, b, c;
};

auto const zero = [](std::shared_ptr<Any>&, Batch const&) { return torch::zeros({}); };

auto any_model(std::function<void(Any&)> const& fill) {
  return libtorch::model<Batch>([fill] { return std::make_shared<Any>(fill); }, zero, nets::rule());
}

/// The sentence of one step of Conv with this loss.
template <class Loss> auto step(Loss loss) {
  return [loss] {
    auto const rows  = nets::rows(8);
    auto const model = libtorch::model<Batch>([] { return nets::Conv{}; }, loss, nets::rule());
    auto copy        = model.instantiate(Cpu::logical(1)[0], Seed{1});
    for (int i = 0; i < 2; ++i) copy.value_and_gradient(nets::batches(rows)[0], 0, LooksAtEnd{});
  };
}

}  // namespace

TEST_CASE("a parameter that does not fit is named", "[libtorch]") {
  CHECK_THROWS_WITH(any_model([](Any& m) { m.register_parameter("w", torch::ones({2}, torch::kFloat64)); }),
                    Contains("the parameter w of the module is of Double, 64 bits, and a copy of a model has variables "
                             "of Float, 32 bits"));
  CHECK_THROWS_WITH(any_model([](Any& m) { m.register_parameter("w", torch::ones({2}, torch::device(torch::kMeta))); }),
                    Contains("the parameter w of the module is on meta") && Contains("on the CPU"));
  CHECK_THROWS_WITH(any_model([](Any& m) {
                      m.register_parameter("w", torch::ones({2}));
                      m.register_buffer("b", torch::ones({2}, torch::kFloat64));
                    }),
                    Contains("the buffer b of the module is of Double"));
  CHECK_THROWS_WITH(any_model([](Any& m) { m.register_parameter("w", torch::ones({2}), false); }),
                    Contains("0 parameters that need a gradient"));
  CHECK_THROWS_WITH(any_model([](Any& m) { m.register_parameter("w", torch::ones({2, 0})); }),
                    Contains("a dimension is at least 1, but w has one of 0"));
}

TEST_CASE("a parameter of five dimensions counts as one of four", "[libtorch]") {
  auto const model = any_model([](Any& m) { m.register_parameter("w", torch::ones({2, 3, 4, 5, 6})); });
  CHECK(lines_of(PlanView{model.plan}) == std::vector<std::string>{"w f32[2,3,4,30]"});
}

TEST_CASE("a loss or a metric that is not one number is refused", "[libtorch]") {
  CHECK_THROWS_WITH(
      step([](nets::Conv& net, Batch const& batch) { return nets::Classify<nets::Conv>{}.predict(net, batch); })(),
      Contains("the loss is a tensor of sizes (8, 3), and it is one number"));
  CHECK_THROWS_WITH(step([](nets::Conv&, Batch const&) { return torch::Tensor{}; })(),
                    Contains("the loss is a tensor of sizes (none)"));
  struct TwoNumbers : nets::Classify<nets::Conv> {
    std::array<torch::Tensor, 2> operator()(nets::Conv& net, Batch const& batch) const {
      return {nets::loss_of(net, batch), torch::ones({2})};
    }
  };
  CHECK_THROWS_WITH(step(TwoNumbers{})(), Contains("metric accuracy is a tensor of sizes (2)"));
}

TEST_CASE("a parameter without a gradient is named", "[libtorch]") {
  CHECK_THROWS_WITH(step([](nets::Conv& net, Batch const& batch) {
                      auto const x = nets::Classify<nets::Conv>::images(batch);
                      return net->conv(x).square().sum() + 0 * net->out->bias.sum();
                    })(),
                    Contains("3 of 6 parameters of the module get no gradient, the first of them is dense.weight"));
  CHECK_THROWS_WITH(step([](nets::Conv& net, Batch const& batch) { return nets::loss_of(net, batch).detach(); })(),
                    Contains("6 of 6 parameters of the module get no gradient, the first of them is conv.weight"));
}

TEST_CASE("a step that takes variables out of their memory is refused", "[libtorch]") {
  CHECK_THROWS_WITH(step([](nets::Conv& net, Batch const& batch) {
                      auto const loss = nets::loss_of(net, batch);
                      net->zero_grad();
                      net->dense->weight.mutable_grad() = torch::zeros_like(net->dense->weight);
                      return loss;
                    })(),
                    Contains("the gradient of ") && Contains(" is not where its copy of the model has it"));
  CHECK_THROWS_WITH(step([](nets::Conv& net, Batch const& batch) {
                      auto const loss = nets::loss_of(net, batch);
                      loss.backward();
                      net->dense->bias.set_data(net->dense->bias.clone());
                      return nets::loss_of(net, batch);
                    })(),
                    Contains("the module has moved dense.bias out of the memory of its copy"));
}

TEST_CASE("a step that changes what is no variable is refused", "[libtorch]") {
  auto const model = libtorch::model<Batch>(
      [] {
        return std::make_shared<Any>([](Any& m) {
          m.a = m.register_parameter("w", torch::ones({2}));
          m.b = m.register_buffer("seen", torch::zeros({3}, torch::kInt64));
        });
      },
      [](std::shared_ptr<Any>& m, Batch const&) {
        m->b.add_(1);
        return m->a.sum();
      },
      nets::rule());
  auto copy       = model.instantiate(Cpu::logical(1)[0], Seed{1});
  auto const rows = nets::rows(8);
  CHECK_THROWS_WITH(copy.value_and_gradient(nets::batches(rows)[0], 0, LooksAtEnd{}),
                    Contains("a step has changed seen, which is no variable of the model: it is a buffer of integers"));
}

TEST_CASE("a module that is made again must be the same", "[libtorch]") {
  auto calls       = std::make_shared<int>(0);
  auto const model = libtorch::model<Batch>(
      [calls] { return torch::nn::Linear{64, 3 + ++*calls}; },
      [](torch::nn::Linear& net, Batch const& batch) { return net(libtorch::tensor(batch.x, {-1, 64})).sum(); },
      nets::rule());
  CHECK_THROWS_WITH(model.instantiate(Cpu::logical(1)[0], Seed{1}),
                    Contains("a module that was made again has weight (5, 64) where the first one had weight of 256"));
}

TEST_CASE("a tensor is a view of the numbers, of sizes that fit", "[libtorch]") {
  auto const x = std::vector<float>(12, 1.5F);
  auto const t = libtorch::tensor(Span<float const>{x}, {-1, 2, 3});
  CHECK(t.sizes() == at::IntArrayRef{2, 2, 3});
  CHECK(t.data_ptr() == x.data());
  CHECK(libtorch::tensor(Span<float const>{}, {-1, 4}).sizes() == at::IntArrayRef{0, 4});
  auto const y = std::vector<int>{1, 2};
  CHECK(libtorch::tensor(Span<int const>{y}, {2}).scalar_type() == torch::kInt32);
  auto const sized = [&](std::vector<std::int64_t> sizes) {
    return [&x, sizes] { libtorch::tensor(Span<float const>{x}, sizes); };
  };
  CHECK_THROWS_WITH(sized({-1, 5})(),
                    Contains("a tensor of sizes (-1, 5) is asked of 12 numbers, which are no multiple "
                             "of 5"));
  CHECK_THROWS_WITH(sized({2, 5})(), Contains("and they are 10"));
  CHECK_THROWS_WITH(sized({-1, -1})(), Contains("and 2 of them are -1"));
  CHECK_THROWS_WITH(sized({-2})(), Contains("-2 is no size"));
}

#endif
