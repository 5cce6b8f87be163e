// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/nn/engine/sequential_executor.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

namespace detail {

template <class D, class Metric, class Target>
concept queues_metric = requires(Metric const& m, float const* y, Target const* wanted, SumOfRows to) {
  m.template queue<D>(1, 1, y, wanted, to);
};

/// True if device D computes all of these metrics, and the host none.
template <class D, class Target, class... Metrics>
inline constexpr bool queues_metrics = (queues_metric<D, Metrics, Target> && ...);

}  // namespace detail

/// One step on a device that QueuesWork: enqueues the work for one batch, and reads the results from host memory after
/// a wait.
///
/// keeps   batch, executor, loss, metrics and states outlive it
template <class D, class Net, class Loss, class Metrics, class States, class Batch> class QueuedStep {
  static constexpr auto width = Net::output::size;
  using target                = typename Loss::target;

 public:
  /// Copies the batch to the device.
  ///
  /// over    what the states of metrics count
  /// throws  BadArgument when the loss refuses a target
  QueuedStep(Executor<D, Net>& executor, Loss const& loss, Metrics const& metrics, States& states, Batch const& batch,
             Pass const& pass, metric::Over over)
      : executor_{&executor}, loss_{&loss}, metrics_{&metrics}, states_{&states}, batch_{&batch},
        pass_{executor.step().tell(pass)}, over_{over} {
    if constexpr (requires { loss.check(batch.rows, width, batch.y.data()); })
      loss.check(batch.rows, width, batch.y.data());
    executor.read(0, batch.x.data());
    targets_ = executor.step().fetch(batch.y.data(), batch.y.size());
  }

  /// Computes forward, loss and backward. Waits before each ready(), but only at the end if Ready LooksAtEnd or follows
  /// the queue; in the latter case also after forward for a metric that only the host computes.
  ///
  /// update    called before the wait if Ready LooksAtEnd, to enqueue work after backward
  /// returns   the sum of losses, as it was before `ready` let it be reduced
  template <class Ready, class Update>
  float compute_gradients(Gradients const& g, bool checks, Ready& ready, Update&& update) {
    if constexpr (std::is_base_of_v<LooksAtEnd, Ready>) {
      queue_all(g, checks);
      update();
      return look(g);
    } else {
      constexpr bool follows = requires { requires Ready::follows_queue; };
      step().begin(g.values);
      executor_->forward(pass_);
      queue_header(g.values);
      auto loss = 0.0F;
      if constexpr (!follows || !all_metrics_queue()) loss = look(g);
      if constexpr (follows) step().keep(g.values.data());
      ready(plan::header);
      scale_loss();
      auto checked = plan::header;
      executor_->backward(pass_, [&](std::size_t end) {
        if (checks) step().find_bad(g.values, std::exchange(checked, end), end);
        if constexpr (!follows) executor_->settle();
        ready(end);
      });
      step().end();
      executor_->settle();
      return follows ? StepHeader{step().sums()}.loss() : loss;
    }
  }

  /// Computes forward, loss and backward by replaying a recorded graph, then waits: no gradient is final before that.
  template <class Update> float replay(Gradients const& g, bool checks, Update&& update) {
    CHORALE_EXPECTS(pass_.together.all_reduce == nullptr,
                    "a step cannot be recorded in whose middle replicas add up on the host, as SyncBatchNorm does: use "
                    "Cuda without replaying(), or nn::BatchNorm");
    step().replay({checks, pass_.loss_scale}, [&] { queue_all(g, checks); });
    update();
    return look(g);
  }

  /// Enqueues a whole step of a single replica, without a wait: its sums stay on the device until the step has ended.
  ///
  /// bad_stays   true: if an earlier step was bad, this one is bad, too
  template <class Update>
  void run_ahead(Gradients const& g, bool checks, bool bad_stays, bool replays, Update&& update) {
    step().mark_copied();
    auto const work = [&] {
      if (bad_stays) step().begin_behind();
      else step().begin();
      queue_step(g, checks, step().own_sums());
    };
    if (replays) step().replay({checks, pass_.loss_scale, true, bad_stays}, work);
    else work();
    update();
    step().mark_ended();
  }

  /// Computes forward and the header only, and waits for them.
  void evaluate(Span<float> sums) {
    step().begin();
    executor_->forward(pass_);
    queue_header(step().own_sums());
    step().end();
    executor_->settle();
    std::ranges::copy(step().sums(), sums.begin());
    StepHeader{sums}.rows() = static_cast<float>(batch_->rows);
    finish_header(sums);
  }

 private:
  auto& step() { return executor_->step(); }

  void queue_all(Gradients const& g, bool checks) {
    step().begin(g.values);
    queue_step(g, checks, g.values);
  }

  void queue_step(Gradients const& g, bool checks, Span<float> header) {
    executor_->forward(pass_);
    queue_header(header);
    scale_loss();
    executor_->backward(pass_, [](std::size_t) {});
    if (checks) step().find_bad(g.values, plan::header, g.values.size() - plan::trailer, &StepHeader{header}.loss());
    step().end();
  }

  /// Waits for the queue. Returns the sum of losses.
  float look(Gradients const& g) {
    executor_->settle();
    finish_header(g.values);
    return g.loss();
  }

  /// Writes the metrics that only the host computes. Called after a wait.
  void finish_header(Span<float> header) {
    metric::each_of(*metrics_, [&]<std::size_t I>(auto const& metric) {
      using Metric = std::remove_cvref_t<decltype(metric)>;
      if constexpr (metric::HasState<Metric>) {
        auto const targets = batch_->y.size() / batch_->rows;
        states_->template add<I>(over_, batch_->rows, width, executor_->output(0), batch_->y.data(), targets);
        StepHeader{header}.metric(I) = metric::not_in_header(over_);
      } else if constexpr (!queues<Metric>) {
        StepHeader{header}.metric(I) = metric.sum(batch_->rows, width, executor_->output(0), batch_->y.data());
      }
    });
  }

  template <class Metric> static constexpr bool queues = detail::queues_metric<D, Metric, target>;

  static constexpr bool all_metrics_queue() {
    return []<class... Metric>(std::tuple<Metric...> const*) {
      return detail::queues_metrics<D, target, Metric...>;
    }(static_cast<Metrics const*>(nullptr));
  }

  void queue_header(Span<float> header) {
    constexpr bool fits = requires(Loss const& loss, float* y, target const* wanted, SumOfRows to) {
      loss.template queue<D>(1, width, y, wanted, y, to);
    };
    auto const* const y = executor_->output(0);
    if constexpr (fits)
      loss_->template queue<D>(batch_->rows, width, y, targets_, executor_->d_output(0),
                               step().sum_to(&StepHeader{header}.loss()));
    else loss::detail::refuse_device<D, Loss>();
    metric::each_of(*metrics_, [&]<std::size_t I>(auto const& metric) {
      if constexpr (queues<std::remove_cvref_t<decltype(metric)>>)
        metric.template queue<D>(batch_->rows, width, y, targets_, step().sum_to(&StepHeader{header}.metric(I)));
    });
  }

  void scale_loss() {
    if (pass_.loss_scale != 1) Kernels<D>::multiply(batch_->rows * width, executor_->d_output(0), pass_.loss_scale);
  }

  Executor<D, Net>* executor_;
  Loss const* loss_;
  Metrics const* metrics_;
  States* states_;
  Batch const* batch_;
  Pass pass_;
  metric::Over over_;
  target const* targets_ = nullptr;  // on the device
};

}  // namespace chorale::nn
