// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/nn/executor.hpp>
#include <chorale/nn/loss.hpp>
#include <chorale/nn/metric.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::nn {

/// One copy of a compiled model on one device: variables, gradients and optimizer slots in one arena, cut by the plan.
///
///   | variables | gradients | slot 0 | slot 1 | ...        each laid out as the plan says
///
/// keeps   a step allocates nothing once its number of rows was seen
template <class D, class Net, class Loss, class Optimizer, class... Metrics>
class Instance {
 public:
  using network = Net;
  using target  = typename Loss::target;

  static constexpr auto const& plan    = Net::plan;
  static constexpr std::size_t metrics = sizeof...(Metrics);
  static_assert(plan::first_metric + metrics <= plan::header, "chorale: a model has at most 14 metrics");

  Instance(D device, Loss loss, Optimizer const& rule, std::tuple<Metrics...> metrics_of, Seed seed)
      : device_{std::move(device)}, loss_{std::move(loss)}, metrics_{std::move(metrics_of)}, seed_{seed},
        arena_{device_.allocate(plan.arena_bytes(Optimizer::slots))}, net{part(0, 1)},
        optimizer{rule, part(2, Optimizer::slots)} {
    for (std::size_t i = 0; i < plan.variables.size(); ++i)
      initialize(net.variables()[i].value, plan.variables[i].spec, Random{seed, i});
  }

  /// Forward, loss and backward of one share of a batch, which may be empty.
  ///
  /// batch     x (B, Input), y (B, targets); first_row: of this share in the global batch
  /// ready     called with an end: gradients below it are final, the header first
  /// returns   the loss, a sum over rows; gradients() then holds sums over the same rows
  /// throws    BadArgument when the batch does not fit the network
  template <class Batch, class Ready>
  Sum<float> value_and_gradient(Batch const& batch, std::size_t first_row, Ready&& ready) {
    auto const g = gradients();
    if (batch.rows == 0) {
      std::fill(g.values.begin(), g.values.end(), 0.0F);
      ready(g.values.size());
      return {};
    }
    std::fill(g.trailer().begin(), g.trailer().end(), 0.0F);
    g.trailer()[plan::summed_at] = 1;
    auto& executor  = executor_for(batch);
    auto const pass = Pass{.training = true, .seed = seed_, .step = static_cast<std::uint64_t>(optimizer.now.step),
                           .first_row = first_row};
    executor.forward(batch.x.data(), pass);
    write_header(batch, executor, g.values);
    auto const loss =
        Sum<float>{g.loss(), static_cast<std::int64_t>(batch.rows)};  // now: `ready` may let it be reduced
    ready(plan::header);
    auto checked = plan::header;
    executor.backward(pass, [&](std::size_t end) {
      if (optimizer.on_non_finite != NonFinite::allow) mark_non_finite(g, std::exchange(checked, end), end);
      ready(end);                                                          // now they may change
    });
    ready(g.values.size());
    return loss;
  }

  /// Forward and loss, without gradients.
  ///
  /// sums      the header of Gradients: loss, rows, metrics, each added up over the rows of the batch
  template <class Batch>
  void evaluate(Batch const& batch, std::span<float, plan::header> sums) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    if (batch.rows == 0) return;
    auto& executor = executor_for(batch);
    executor.forward(batch.x.data(), Pass{.seed = seed_});
    write_header(batch, executor, sums);
  }

  /// The outputs of the network: (B, Output), valid until the next call.
  template <class Batch>
  Span<float const> predict(Batch const& batch) {
    if (batch.rows == 0) return {};
    auto& executor = executor_for(batch, Targets::ignored);
    executor.forward(batch.x.data(), Pass{.seed = seed_});
    return {executor.output(), batch.rows * Net::output::size};
  }

  Gradients gradients() const { return {part(1, 1), plan.variables, plan.ends()}; }

  /// A number that differs when any bit of any variable does: equal on all replicas after every step.
  std::uint64_t hash() const {
    auto h = std::uint64_t{0xcbf29ce484222325};
    for (float const& v : net.variables().values) h = (h ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001b3;
    return h;
  }

 private:
  class Network {
   public:
    explicit Network(Span<float> values) : values_{values} {}
    Variables variables() const { return {values_, plan.variables}; }

   private:
    Span<float> values_;
  };

  /// The update rule with its state.
  class Rule {
   public:
    Rule(Optimizer const& rule, Span<float> slots) : rule_{rule}, slots_{slots} {}

    float rate() const { return rule_.rate(now); }

    /// Applies the mean of reduced gradients: divides their sums by their rows, once.
    ///
    /// throws    NumericFault when the loss or a gradient is not finite and on_non_finite is stop: it names step,
    ///           replica and variable, and the variables are those of the step before
    void apply(Variables const& variables, Gradients const& gradients) {
      if (gradients.rows() == 0) return;
      auto const fault = on_non_finite == NonFinite::allow ? std::string{} : non_finite(gradients);
      if (!fault.empty() && on_non_finite == NonFinite::stop)
        throw NumericFault{fault + "; no variable was changed.",
                           "a lower learning rate, global_clipnorm, a look at the inputs for NaN, or "
                           "FitOptions::on_non_finite."};
      if (!fault.empty()) ++skipped;
      else rule_.template update<D>({variables.body(), gradients.body(), slots_, scale(gradients), now});
      ++now.step;
    }

    optim::Moment now;                                                     // epoch is the trainer's to set
    NonFinite on_non_finite = NonFinite::stop;
    std::size_t skipped     = 0;                                           // steps whose update was left out

   private:
    /// What is not finite in reduced gradients; empty when all is. Every replica finds the same.
    std::string non_finite(Gradients const& g) const {
      auto const step   = " of step " + std::to_string(now.step);
      auto const faults = g.trailer()[plan::faults_at];
      if (!std::isfinite(g.loss()))
        return "the loss" + step + " is " + std::to_string(g.loss()) + " over " +
               std::to_string(static_cast<long>(g.rows())) + " rows";
      if (faults == 1)
        return "the gradient of " + name_of(g, g.trailer()[plan::variable_at]) + step + " is not finite on replica " +
               std::to_string(static_cast<long>(g.trailer()[plan::rank_at]));
      if (faults > 1)
        return "gradients" + step + " are not finite on " + std::to_string(static_cast<long>(faults)) + " replicas";
      if (g.trailer()[plan::summed_at] == 1 || Kernels<D>::finite(g.body())) return {};
      for (std::size_t i = 0; i < g.plan.size(); ++i)
        if (!Kernels<D>::finite(g[i]))
          return "the gradient of " + name_of(g, static_cast<float>(i)) + step +
                 " is finite on every replica, but their sum is not";
      return "a gradient" + step + " is not finite";
    }
    static std::string name_of(Gradients const& g, float index) {
      return std::string{std::string_view{g.plan[static_cast<std::size_t>(index)].name}};
    }

    float scale(Gradients const& gradients) const {
      auto const mean = 1.0F / gradients.rows();
      if (rule_.global_clipnorm <= 0) return mean;
      return mean * optim::clip_factor<D>(gradients.body(), mean, rule_.global_clipnorm);
    }

    Optimizer rule_;
    Span<float> slots_;
  };

  enum class Targets { needed, ignored };

  Span<float> part(std::size_t first, int parts) const {
    return {reinterpret_cast<float*>(arena_.data()) + first * plan.elements,
            plan.elements * static_cast<std::size_t>(parts)};
  }

  template <class Batch>
  Executor<D, Net>& executor_for(Batch const& batch, Targets targets = Targets::needed) {
    auto const wanted = batch.rows * Net::input::size;
    CHORALE_EXPECTS(batch.x.size() == wanted,
                    "the network takes rows of " + Net::input::to_string() + ", " + std::to_string(wanted) +
                        " numbers for " + std::to_string(batch.rows) + " rows, but the batch has " +
                        std::to_string(batch.x.size()));
    CHORALE_EXPECTS(targets == Targets::ignored || batch.y.size() == batch.rows * Loss::targets(Net::output::size),
                    "the loss takes " + std::to_string(Loss::targets(Net::output::size)) + " targets a row, " +
                        std::to_string(batch.rows * Loss::targets(Net::output::size)) + " for " +
                        std::to_string(batch.rows) + " rows, but the batch has " + std::to_string(batch.y.size()));
    for (auto const& executor : executors_)
      if (executor->rows() == static_cast<int>(batch.rows)) return *executor;
    executors_.push_back(std::make_unique<Executor<D, Net>>(device_, static_cast<int>(batch.rows), net.variables(),
                                                            gradients()));
    return *executors_.back();
  }

  /// Says in the trailer which variable is the first, among those in [begin, end), with a gradient that is not finite.
  void mark_non_finite(Gradients const& g, std::size_t begin, std::size_t end) const {
    auto const trailer = g.trailer();
    if (trailer[plan::faults_at] != 0 || Kernels<D>::finite(g.values.subspan(begin, end - begin))) return;
    for (std::size_t i = 0; i < g.plan.size(); ++i) {
      if (g.plan[i].offset < begin || g.plan[i].offset >= end || Kernels<D>::finite(g[i])) continue;
      trailer[plan::faults_at]   = 1;
      trailer[plan::rank_at]     = static_cast<float>(rank);
      trailer[plan::variable_at] = static_cast<float>(i);
      return;
    }
  }

  template <class Batch>
  void write_header(Batch const& batch, Executor<D, Net>& executor, Span<float> header) {
    constexpr auto width   = Net::output::size;
    auto const* const y    = executor.output();
    header[plan::loss_at]  = loss_.template compute<D>(batch.rows, width, y, batch.y.data(), executor.d_output());
    header[plan::rows_at]  = static_cast<float>(batch.rows);
    auto at                = plan::first_metric;
    std::apply([&](auto const&... m) { ((header[at++] = m.sum(batch.rows, width, y, batch.y.data())), ...); },
               metrics_);
  }

  D device_;
  Loss loss_;
  std::tuple<Metrics...> metrics_;
  Seed seed_;
  typename D::block arena_;
  std::vector<std::unique_ptr<Executor<D, Net>>> executors_;               // one for each number of rows seen so far

 public:
  Network net;
  Rule optimizer;
  Rank rank = 0;                                                           // of the replica; for errors
};

/// A network with its loss, optimizer and metrics: a value that knows nothing of devices or replicas.
///
/// source  tf.keras.Model.compile
template <class Net, class Loss, class Optimizer, class... Metrics>
struct Compiled {
  using network = Net;
  using input   = typename Net::input;
  using output  = typename Net::output;
  using target  = typename Loss::target;
  template <class D>
  using instance = Instance<D, Net, Loss, Optimizer, Metrics...>;

  static constexpr auto const& plan = Net::plan;
  static constexpr std::array<std::string_view, sizeof...(Metrics)> metric_names{Metrics::name...};

  Loss loss;
  Optimizer optimizer;
  std::tuple<Metrics...> metrics;

  /// Variables and optimizer state on one device; the same seed gives the same bits everywhere.
  template <class D>
  instance<D> instantiate(D const& device, Seed seed) const {
    return {device, loss, optimizer, metrics, seed};
  }
};

/// Puts a network together with what trains it: nn::compile<Net>(loss, optimizer, metrics...).
template <class Net, class Loss, class Optimizer, class... Metrics>
Compiled<Net, Loss, Optimizer, Metrics...> compile(Loss loss, Optimizer optimizer, Metrics... metrics) {
  static_assert(
      requires {
        Net::plan;
        typename Net::nodes;
      },
      "chorale: the network argument is not a network. Write struct Net : nn::Sequential<nn::Input<...>, ...> {}");
  static_assert(requires { typename Loss::target; },
                "chorale: the loss argument is not a loss. Use loss::SparseCrossEntropy, loss::CrossEntropy, or "
                "loss::MeanSquaredError");
  static_assert(
      optim::Optimizer<Optimizer>,
      "chorale: the optimizer argument is not an Optimizer. It needs slots, rate(Moment), global_clipnorm and "
      "update<Device>(Update). Use optim::SGD, optim::Adam, or optim::AdamW");
  return {std::move(loss), std::move(optimizer), {std::move(metrics)...}};
}

/// A network with its loss, optimizer and metrics: what Keras calls a compiled model. See nn::compile.
template <class M, class D>
concept ModelOn = requires(M const& model, D const& device, Seed seed) {
  typename M::input;                                                       // a Shape; the batch dimension is not in it
  typename M::output;
  model.instantiate(device, seed);                                         // variables and optimizer state
};

}  // namespace chorale::nn
