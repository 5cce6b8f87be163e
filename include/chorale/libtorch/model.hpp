// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it, and a program that does links libtorch.
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/libtorch/module_variables.hpp>
#include <chorale/libtorch/placed_module.hpp>
#include <chorale/libtorch/tensor.hpp>
#include <chorale/model/custom.hpp>
#include <chorale/model/model.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::libtorch {

namespace detail {

template <class M>
concept HoldsModule = requires(M const& module) {
  { *module.operator->() } -> std::convertible_to<torch::nn::Module const&>;
};

/// True if a Make makes a module.
template <class Make>
concept MakesModule = std::invocable<Make const&> && HoldsModule<std::invoke_result_t<Make const&>>;

/// True if a Loss is a function of the modules that a Make makes, and of batches.
template <class Loss, class Make, class Batch>
concept TakesModule = MakesModule<Make> && std::invocable<Loss&, std::invoke_result_t<Make const&>&, Batch const&>;

template <class Loss> constexpr std::size_t metrics_of() {
  if constexpr (requires { Loss::metric_names; }) return std::size(Loss::metric_names);
  else return 0;
}

template <class Loss> struct Metrics {};
template <class Loss> requires requires { Loss::metric_names; } struct Metrics<Loss> {
  static constexpr auto metric_names = Loss::metric_names;
};

/// Makes the calling thread compute on as many threads as its device has, before and after libtorch has chosen its own.
inline void keep_threads() {
  auto const threads = Cpu::threads_here();
  static_cast<void>(at::get_num_threads());  // the first call of a thread sets the number
  if (Cpu::threads_here() != threads) ::omp_set_num_threads(threads);
}

}  // namespace detail

/// How a copy of a model computes whose network is a module of libtorch: the Learner that libtorch::model() makes.
///
/// keeps   each copy of a model has a separate module, whose parameters and float buffers lie in the copy's memory;
///         gradients are added up in place, and each is reported as soon as it is final, while backward continues
/// cost    what libtorch allocates
/// order   libtorch's. Operations that draw random numbers, such as dropout, use the one generator of the process: it is
///         seeded in each step, so that one replica in a process repeats a run; several take turns by chance
template <class Make, class Loss> class Learner : public custom::Outputs<Loss>, public detail::Metrics<Loss> {
 public:
  using Module = std::invoke_result_t<Make const&>;

  Learner(Make make, Loss loss, std::uint64_t constants)
      : make_{std::move(make)}, loss_{std::move(loss)}, constants_{constants} {}

  Learner(Learner const& other) : Learner{other.make_, other.loss_, other.constants_} {}  // without its module
  Learner(Learner&&)                 = default;
  Learner& operator=(Learner const&) = delete;
  ~Learner()                         = default;

  /// Makes the module: the same seed gives the same first values.
  void initialize(Variables const& variables, Seed seed) {
    module_         = std::make_unique<Module>(made_with_seed(make_, seed));
    auto found      = variables_of(**module_);
    auto const name = [](auto const& v) { return std::string{std::string_view{v.name}}; };
    auto const text = [&](std::size_t i) {
      return i < found.variables.size() ? found.variables[i].name + " " + text_of(found.variables[i].tensor.sizes())
                                        : std::string{"nothing"};
    };
    for (std::size_t i = 0; i < std::max(found.variables.size(), variables.size()); ++i)
      if (i >= found.variables.size() || i >= variables.size() || found.variables[i].name != name(variables[i]) ||
          static_cast<std::size_t>(found.variables[i].tensor.numel()) != variables[i].value.size())
        throw BadArgument{"a module that was made again has " + text(i) + " where the first one had " +
                              (i < variables.size() ? name(variables[i]) + " of " +
                                                          std::to_string(variables[i].value.size()) + " numbers"
                                                    : std::string{"nothing"}) +
                              ".",
                          "a function that makes the same module in each call."};
    placed_ = std::make_unique<PlacedModule>(std::move(found));
  }

  void place(Variables const& variables, Gradients const& gradients) { placed_->place(variables, gradients); }

  template <class Step, class Batch> void learn(Step& step, Batch const& batch) {
    detail::keep_threads();
    detail::seed_generator(step.pass.now.drawn().value + step.pass.now.first_row);
    (**module_).train(step.pass.training);
    auto const numbers = forward(batch, static_cast<float>(step.rows()));
    tell(std::make_index_sequence<metrics>{}, numbers, [&](float sum, auto... more) { step.loss(sum, more...); });
    placed_->backward(numbers[0], step);
  }

  template <class Batch> void evaluate(Variables const&, Batch const& batch, StepHeader<float> header) {
    auto const guard   = begin_evaluation();
    auto const numbers = checked(loss_(*module_, batch));
    header.loss()      = numbers[0].template item<float>();
    for (std::size_t i = 0; i < metrics; ++i) header.metric(i) = numbers[i + 1].template item<float>();
  }

  /// The outputs that loss.predict(module, batch) gives: (B, output_width).
  template <class Batch> requires requires(Loss& loss, Module& module, Batch const& batch) {
    loss.predict(module, batch);
  } Span<float const> predict(Variables const&, Batch const& batch) {
    auto const guard = begin_evaluation();
    outputs_         = torch::Tensor{loss_.predict(*module_, batch)}.to(torch::kCPU, torch::kFloat32).contiguous();
    auto const size  = batch.rows * Loss::output_width;
    if (static_cast<std::size_t>(outputs_.numel()) != size)
      throw BadArgument{"predict of " + std::to_string(batch.rows) + " rows gives a tensor of " +
                            text_of(outputs_.sizes()) + ", and output_width is " + std::to_string(Loss::output_width) +
                            ".",
                        "a tensor of (rows, output_width)."};
    return {outputs_.template data_ptr<float>(), size};
  }

  /// Lets ranks compare what stays in the module, and is not trained.
  void options(auto&& visit) const { visit("constants", constants_); }

  /// The module of this copy, between steps: its parameters and buffers have the values of the variables.
  Module& module() {
    placed_->update_counters();
    return *module_;
  }

 private:
  static constexpr std::size_t metrics = detail::metrics_of<Loss>();

  template <class Batch> auto forward(Batch const& batch, float rows) {
    struct Restored {
      PlacedModule* placed;
      ~Restored() {
        if (placed != nullptr) placed->restore();
      }
    };
    placed_->begin_forward();
    auto restored      = Restored{placed_.get()};
    auto const numbers = checked(loss_(*module_, batch));
    placed_->end_forward(rows);
    restored.placed = nullptr;
    return numbers;
  }

  torch::NoGradGuard begin_evaluation() {
    detail::keep_threads();
    (**module_).eval();
    return {};
  }

  /// The loss and the metrics as an array, if each is one number.
  template <class Result> static std::array<torch::Tensor, 1 + metrics> checked(Result const& result) {
    auto numbers = std::array<torch::Tensor, 1 + metrics>{};
    if constexpr (std::convertible_to<Result const&, torch::Tensor>) numbers[0] = result;
    else numbers = result;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      auto const what = i == 0 ? std::string{"the loss"} : "metric " + std::string{name_of(i - 1)};
      if (!numbers[i].defined() || numbers[i].numel() != 1)
        throw BadArgument{what + " is a tensor of sizes " +
                              (numbers[i].defined() ? text_of(numbers[i].sizes()) : std::string{"(none)"}) +
                              ", and it is one number.",
                          "its sum over the rows: torch::kSum as reduction, or .sum()."};
    }
    return numbers;
  }

  static std::string_view name_of(std::size_t metric) {
    if constexpr (metrics != 0) return Loss::metric_names[metric];
    else return {};
  }

  template <std::size_t... i> static void tell(std::index_sequence<i...>, auto const& numbers, auto&& to) {
    to(numbers[0].template item<float>(), numbers[i + 1].template item<float>()...);
  }

  Make make_;
  Loss loss_;
  std::uint64_t constants_;  // hash of what is not trained
  std::unique_ptr<Module> module_;
  std::unique_ptr<PlacedModule> placed_;
  torch::Tensor outputs_;  // of predict
};

/// Makes a model of a module of libtorch, to be trained under any strategy whose replicas have their own copies.
///
///   auto const loss = [](Net& net, Batch const& batch) {
///     auto const images = libtorch::tensor(batch.x, {-1, 1, 28, 28});
///     auto const labels = libtorch::tensor(batch.y, {-1}).to(torch::kLong);
///     return torch::nll_loss(net(images), labels, {}, torch::Reduction::Sum);
///   };
///   auto const model = libtorch::model<Batch>([] { return Net{}; }, loss, optim::Adam{.learning_rate = 1e-3F});
///
/// Batch      that the dataset gives
/// make       makes the module, a TORCH_MODULE or a std::shared_ptr; called once here, and once for each copy
/// loss       loss(module, batch) gives a tensor of one number, the sum of losses over the rows of the batch. An object
///            may have metric_names, and gives then a std::array of the loss and of each metric, sums as well; and
///            predict(module, batch) with a static constexpr output_width
/// optimizer  of this library
/// keeps      a parameter is a variable. A buffer of float32, such as moving statistics, and one integer, a count, are
///            tracked variables: each update adds the mean of the replicas' changes, weighted by their rows, so that
///            replicas stay equal. An integer is exact up to 2^24. Frozen parameters and other buffers stay in the
///            module, and are not saved
/// throws     BadArgument in one sentence when a parameter or a buffer is not float32 or not on the CPU
template <class Batch, class Make, class Loss, class Optimizer> auto model(Make make, Loss loss, Optimizer optimizer) {
  constexpr bool makes = detail::MakesModule<Make>, takes = detail::TakesModule<Loss, Make, Batch>;
  constexpr bool gives = [] {
    if constexpr (!takes) return true;
    else
      return std::convertible_to<std::invoke_result_t<Loss&, std::invoke_result_t<Make const&>&, Batch const&>,
                                 std::conditional_t<detail::metrics_of<Loss>() == 0, torch::Tensor,
                                                    std::array<torch::Tensor, 1 + detail::metrics_of<Loss>()>>>;
  }();
  static_assert(makes,
                "chorale: the first argument of libtorch::model is a function without parameters that makes a module: "
                "a TORCH_MODULE, or a std::shared_ptr of a class derived from torch::nn::Module");
  static_assert(!makes || takes,
                "chorale: the second argument of libtorch::model is called as loss(module, batch). Take the module by "
                "reference, and the batch by Batch const&");
  static_assert(gives,
                "chorale: the loss of libtorch::model gives a torch::Tensor, or, with metric_names, a std::array of "
                "the loss and of each metric");
  if constexpr (takes && gives) {
    auto const first = made_with_seed(make, Seed{});
    auto const found = variables_of(*first);
    return custom_model<Batch>(shapes_of(found),
                               Learner<Make, Loss>{std::move(make), std::move(loss), hash_of_constants(found)},
                               std::move(optimizer));
  } else {
    return RefusedModel{};
  }
}

}  // namespace chorale::libtorch
