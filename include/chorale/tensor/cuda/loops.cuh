// SPDX-License-Identifier: Apache-2.0
//
// Kernels of losses, checks and update rules. Not inline: all.cuh is included once in a program.
#pragma once

#include <chorale/tensor/cuda/launch.cuh>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/softmax.cuh>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/step_header.hpp>

#include <cstddef>

namespace chorale::cuda::launch {

namespace detail {

/// Sums f(r) over all rows, stored in `of_row` first where one block would be slow. The bits are the same either way.
template <class F> cudaError_t sum_rows(std::size_t rows, std::size_t width, SumOfRows to, cudaStream_t queue, F f) {
  constexpr auto one_block = std::size_t{10'240};  // numbers, in 1,024 rows of ten
  auto const add           = [&](auto value) { return sum_each(1, rows, to.sum, queue, value); };
  if (rows * width <= one_block) return add([=] __device__(std::size_t r) { return static_cast<double>(f(r)); });
  auto const code = each(rows, queue, [=] __device__(std::size_t r) { to.of_row[r] = f(r); });
  if (code != cudaSuccess) return code;
  return add([=] __device__(std::size_t r) { return static_cast<double>(to.of_row[r]); });
}

}  // namespace detail

cudaError_t sparse_cross_entropy(std::size_t rows, std::size_t classes, float const* logits, int const* labels,
                                 float* d_logits, SumOfRows to, cudaStream_t queue) {
  return detail::sum_rows(rows, classes, to, queue, [=] __device__(std::size_t r) {
    auto const label = r * classes + static_cast<std::size_t>(labels[r]);
    auto const log_z = detail::softmax_of(classes, logits + r * classes, d_logits + r * classes);
    d_logits[label] -= 1;
    return log_z - logits[label];
  });
}
cudaError_t cross_entropy(std::size_t rows, std::size_t classes, float const* logits, float const* targets,
                          float* d_logits, SumOfRows to, cudaStream_t queue) {
  return detail::sum_rows(rows, classes, to, queue, [=] __device__(std::size_t r) {
    auto const at    = r * classes;
    auto const log_z = detail::softmax_of(classes, logits + at, d_logits + at);
    auto loss        = 0.0;
    for (auto i = at; i < at + classes; ++i) {
      loss += static_cast<double>(targets[i] * (log_z - logits[i]));
      d_logits[i] -= targets[i];
    }
    return static_cast<float>(loss);
  });
}
cudaError_t squared_error(std::size_t rows, std::size_t width, float const* outputs, float const* targets,
                          float* d_outputs, SumOfRows to, cudaStream_t queue) {
  return detail::sum_rows(rows, width, to, queue, [=] __device__(std::size_t r) {
    auto const scale = 1 / static_cast<float>(width);
    auto loss        = 0.0;
    for (auto i = r * width; i < (r + 1) * width; ++i) {
      auto const difference = outputs[i] - targets[i];
      loss += static_cast<double>(difference * difference * scale);
      d_outputs[i] = 2 * difference * scale;
    }
    return static_cast<float>(loss);
  });
}
cudaError_t hits(std::size_t rows, std::size_t classes, float const* outputs, int const* labels, SumOfRows to,
                 cudaStream_t queue) {
  return detail::sum_rows(rows, classes, to, queue, [=] __device__(std::size_t r) {
    auto const* const y = outputs + r * classes;
    auto top            = std::size_t{0};
    for (std::size_t c = 1; c < classes; ++c) top = y[c] > y[top] ? c : top;
    return static_cast<int>(top) == labels[r] ? 1.0F : 0.0F;
  });
}

cudaError_t multiply(std::size_t n, float* x, float factor, cudaStream_t queue) {
  return detail::map(n, queue, [=] __device__(float& value) { value *= factor; }, detail::changed(x));
}

cudaError_t find_bad(std::size_t first, std::size_t n, float const* x, float const* loss, FirstBad* found,
                     cudaStream_t queue) {
  return detail::map(
      n, queue,
      [=] __device__(std::size_t i, float value) {
        if (!isfinite(value)) atomicMin(&found->gradient, static_cast<unsigned long long>(first + i));
        if (i == 0 && loss != nullptr && !isfinite(*loss)) found->loss = 0;
      },
      detail::index_of_each, detail::read(x));
}
cudaError_t squared_norm(std::size_t n, float const* x, double* scratch, double* norm, cudaStream_t queue) {
  auto const quarter = (n + 3) / 4;  // a thread has four loads in flight
  auto const code    = detail::sum_each(partials, quarter, scratch, queue, [=] __device__(std::size_t i) {
    double four[4], sum = 0;
    for (int k = 0; k < 4; ++k) four[k] = i + k * quarter < n ? x[i + k * quarter] : 0;
    for (auto const value : four) sum += value * value;
    return sum;
  });
  if (code != cudaSuccess) return code;
  return detail::sum_each(1, partials, norm, queue, [=] __device__(std::size_t i) { return scratch[i]; });
}

cudaError_t begin_gradients(float* header, float* trailer, float rows, cudaStream_t queue) {
  return detail::each(plan::trailer, queue, [=] __device__(std::size_t i) {
    trailer[i] = i == StepTrailer<float>::summed_at ? 1 : 0;
    if (i == StepHeader<float>::rows_at) header[i] = rows;
  });
}

cudaError_t sgd(Momentum kind, std::size_t n, float* w, float const* g, float* velocity, Sgd s, FirstBad const* bad,
                cudaStream_t queue) {
  using detail::map, detail::changed, detail::read;
  if (kind == Momentum::none)
    return map(
        n, queue,
        [=] __device__(float& weight, float grad) {
          if (bad != nullptr && !bad->none()) return;
          weight = (1 - s.shrink) * weight - s.rate * (grad * s.scale + s.decay * weight);
        },
        changed(w), read(g));
  return map(
      n, queue,
      [=] __device__(float& weight, float& moves, float grad) {
        if (bad != nullptr && !bad->none()) return;
        auto const step = s.rate * (grad * s.scale + s.decay * weight);
        moves           = s.momentum * moves - step;
        weight          = (1 - s.shrink) * weight + (kind == Momentum::classic ? moves : s.momentum * moves - step);
      },
      changed(w), changed(velocity), read(g));
}
cudaError_t adam(std::size_t n, float* w, float const* g, float* m, float* v, Adam s, FirstBad const* bad,
                 cudaStream_t queue) {
  return detail::map(
      n, queue,
      [=] __device__(float& weight, float& mean, float& square, float gradient) {
        if (bad != nullptr && !bad->none()) return;
        auto const grad = gradient * s.scale;
        mean            = s.beta_1 * mean + (1 - s.beta_1) * grad;
        square          = s.beta_2 * square + (1 - s.beta_2) * (grad * grad);
        weight          = weight * (1 - s.decay) - s.rate * mean / (sqrtf(square * s.correct_2) + s.epsilon);
      },
      detail::changed(w), detail::changed(m), detail::changed(v), detail::read(g));
}
cudaError_t move(std::size_t n, float const* x, float* towards, float rows, Movement how, float* next,
                 FirstBad const* bad, cudaStream_t queue) {
  return detail::map(
      n, queue,
      [=] __device__(float now, float& to, float& then) {
        auto const moves = bad == nullptr || bad->none();
        then             = moves ? how.keep * now + how.take * (to / rows) : now;
        to               = 0;
      },
      detail::read(x), detail::changed(towards), detail::written(next));
}

}  // namespace chorale::cuda::launch
