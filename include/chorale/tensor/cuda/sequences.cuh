// SPDX-License-Identifier: Apache-2.0
//
// Kernels of layers of sequences. Not inline: all.cuh is included once in a program.
#pragma once

#include <chorale/tensor/cuda/launch.cuh>
#include <chorale/tensor/cuda/launch.hpp>

#include <cfloat>
#include <cmath>
#include <cstddef>

namespace chorale::cuda::launch {

namespace detail {

__device__ inline std::size_t id_at(Ids ids, std::size_t i) {
  auto const id = ids.bytes == 1 ? static_cast<int>(static_cast<unsigned char const*>(ids.at)[i])
                                 : static_cast<int const*>(ids.at)[i];
  return id < 0 ? ~std::size_t{0} : static_cast<std::size_t>(id);
}

/// Where a query, its key and its value lie: number t of a row, head h.
struct Head {
  Attention of;
  float const* x;

  __device__ float const* query(std::size_t row, std::size_t t, std::size_t h) const {
    return x + (row * of.steps + t) * 3 * of.width + h * (of.width / of.heads);
  }
  __device__ float const* key(std::size_t row, std::size_t t, std::size_t h) const {
    return query(row, t, h) + of.width;
  }
  __device__ float const* value(std::size_t row, std::size_t t, std::size_t h) const {
    return query(row, t, h) + 2 * of.width;
  }
};

__device__ inline float dot(std::size_t n, float const* a, float const* b) {
  auto sum = 0.0F;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace detail

cudaError_t zero(std::size_t n, float* x, cudaStream_t queue) {
  return detail::map(n, queue, [=] __device__(float& value) { value = 0; }, detail::written(x));
}

cudaError_t product(std::size_t m, std::size_t n, std::size_t k, Matrix a, Matrix b, float* c, int adds,
                    cudaStream_t queue) {
  return detail::each(m * n, queue, [=] __device__(std::size_t i) {
    auto const row = i / n, column = i % n;
    auto sum = 0.0F;
    for (std::size_t j = 0; j < k; ++j) {
      auto const left  = a.transposed ? a.at[j * m + row] : a.at[row * k + j];
      auto const right = b.transposed ? b.at[column * k + j] : b.at[j * n + column];
      sum += left * right;
    }
    c[i] = adds != 0 ? c[i] + sum : sum;
  });
}

cudaError_t gather(std::size_t n, std::size_t rows, std::size_t width, float const* table, Ids ids, float* y,
                   cudaStream_t queue) {
  return detail::each(n * width, queue, [=] __device__(std::size_t i) {
    auto const id = detail::id_at(ids, i / width);
    y[i]          = id < rows ? table[id * width + i % width] : NAN;
  });
}
cudaError_t gather_back(std::size_t n, std::size_t rows, std::size_t width, Ids ids, float const* dy, float* d_table,
                        cudaStream_t queue) {
  return detail::each(rows * width, queue, [=] __device__(std::size_t i) {
    auto const row = i / width, column = i % width;
    auto sum = 0.0F;
    for (std::size_t k = 0; k < n; ++k)
      if (detail::id_at(ids, k) == row) sum += dy[k * width + column];
    d_table[i] += sum;
  });
}

cudaError_t add_to_rows(std::size_t rows, std::size_t width, float const* x, float const* vector, float* y,
                        cudaStream_t queue) {
  return detail::map_rows(
      rows * width, width, queue, [=] __device__(float from, float shift, float& to) { to = from + shift; },
      detail::read(x), detail::of_column(vector), detail::written(y));
}
cudaError_t add_to_rows_back(std::size_t rows, std::size_t width, float const* dy, float* d_vector, float* dx,
                             cudaStream_t queue) {
  auto const code = detail::add_columns<1>(
      rows, width, 1, queue,
      [=] __device__(std::size_t row, std::size_t column, double* sum) {
        sum[0] += static_cast<double>(dy[row * width + column]);
      },
      [=] __device__(std::size_t, std::size_t column, double const* sum) {
        d_vector[column] += static_cast<float>(sum[0]);
      });
  if (code != cudaSuccess || dx == nullptr) return code;
  return detail::map(
      rows * width, queue, [=] __device__(float d, float& to) { to += d; }, detail::read(dy), detail::changed(dx));
}

cudaError_t layer_norm(std::size_t vectors, std::size_t width, float const* x, float const* gamma, float const* beta,
                       float epsilon, float* moments, float* y, cudaStream_t queue) {
  return detail::each(vectors, queue, [=] __device__(std::size_t r) {
    auto const n           = static_cast<float>(width);
    auto const* const from = x + r * width;
    auto sum = 0.0F, square = 0.0F;
    for (std::size_t i = 0; i < width; ++i) sum += from[i];
    auto const mean = sum / n;
    for (std::size_t i = 0; i < width; ++i) square += (from[i] - mean) * (from[i] - mean);
    auto const scale   = 1 / sqrtf(square / n + epsilon);
    moments[2 * r]     = mean;
    moments[2 * r + 1] = scale;
    for (std::size_t i = 0; i < width; ++i) y[r * width + i] = gamma[i] * (from[i] - mean) * scale + beta[i];
  });
}
cudaError_t layer_norm_back(std::size_t vectors, std::size_t width, float const* x, float const* gamma,
                            float const* moments, float const* dy, float* d_gamma, float* d_beta, float* dx,
                            cudaStream_t queue) {
  auto const code = detail::add_columns<2>(
      vectors, width, 1, queue,
      [=] __device__(std::size_t row, std::size_t column, double* sum) {
        auto const i = row * width + column;
        sum[0] += static_cast<double>(dy[i] * (x[i] - moments[2 * row]) * moments[2 * row + 1]);
        sum[1] += static_cast<double>(dy[i]);
      },
      [=] __device__(std::size_t, std::size_t column, double const* sum) {
        d_gamma[column] += static_cast<float>(sum[0]);
        d_beta[column] += static_cast<float>(sum[1]);
      });
  if (code != cudaSuccess || dx == nullptr) return code;
  return detail::each(vectors, queue, [=] __device__(std::size_t r) {
    auto const n = static_cast<float>(width), mean = moments[2 * r], scale = moments[2 * r + 1];
    auto sum = 0.0F, dot = 0.0F;
    for (auto i = r * width; i < (r + 1) * width; ++i) {
      auto const g = dy[i] * gamma[i - r * width];
      sum += g;
      dot += g * ((x[i] - mean) * scale);
    }
    for (auto i = r * width; i < (r + 1) * width; ++i)
      dx[i] += scale * (dy[i] * gamma[i - r * width] - (sum / n + (x[i] - mean) * scale * (dot / n)));
  });
}

cudaError_t attend(Attention of, float const* x, float* kept, float* y, cudaStream_t queue) {
  auto const w = of.width / of.heads;
  return detail::each(of.rows * of.heads * of.steps, queue, [=] __device__(std::size_t i) {
    auto const t = i % of.steps, h = i / of.steps % of.heads, row = i / of.steps / of.heads;
    auto const at     = detail::Head{of, x};
    auto* const p     = kept + i * of.steps;
    auto* const to    = y + (row * of.steps + t) * of.width + h * w;
    auto const factor = 1 / sqrtf(static_cast<float>(w));
    auto const keys   = of.keys(t);
    auto top = -FLT_MAX, z = 0.0F;
    for (std::size_t u = 0; u < keys; ++u) {
      p[u] = factor * detail::dot(w, at.query(row, t, h), at.key(row, u, h));
      top  = p[u] > top ? p[u] : top;
    }
    for (std::size_t u = 0; u < keys; ++u) z += p[u] = expf(p[u] - top);
    for (std::size_t u = 0; u < keys; ++u) p[u] /= z;
    for (std::size_t c = 0; c < w; ++c) {
      auto sum = 0.0F;
      for (std::size_t u = 0; u < keys; ++u) sum += p[u] * at.value(row, u, h)[c];
      to[c] = sum;
    }
  });
}
cudaError_t attend_back(Attention of, float const* x, float* kept, float const* dy, float* dx, cudaStream_t queue) {
  auto const w = of.width / of.heads, n = of.rows * of.heads * of.steps;
  auto* const scores = kept + n * of.steps;  // gradients by the scores
  auto const code    = detail::each(n, queue, [=] __device__(std::size_t i) {
    auto const t = i % of.steps, h = i / of.steps % of.heads, row = i / of.steps / of.heads;
    auto const at       = detail::Head{of, x};
    auto const* const p = kept + i * of.steps;
    auto* const ds      = scores + i * of.steps;
    auto const* const d = dy + (row * of.steps + t) * of.width + h * w;
    auto* const d_query = dx + (at.query(row, t, h) - x);
    auto const factor   = 1 / sqrtf(static_cast<float>(w));
    auto const keys     = of.keys(t);
    auto mean           = 0.0F;
    for (std::size_t u = 0; u < keys; ++u) {
      ds[u] = detail::dot(w, d, at.value(row, u, h));
      mean += p[u] * ds[u];
    }
    for (std::size_t u = 0; u < keys; ++u) ds[u] = p[u] * (ds[u] - mean);
    for (std::size_t c = 0; c < w; ++c) {
      auto sum = 0.0F;
      for (std::size_t u = 0; u < keys; ++u) sum += ds[u] * at.key(row, u, h)[c];
      d_query[c] += factor * sum;
    }
  });
  if (code != cudaSuccess) return code;
  return detail::each(n, queue, [=] __device__(std::size_t i) {  // by keys and values: the queries that see them
    auto const u = i % of.steps, h = i / of.steps % of.heads, row = i / of.steps / of.heads;
    auto const at       = detail::Head{of, x};
    auto const first    = (i - u) * of.steps;  // of the probabilities of the head
    auto* const d_key   = dx + (at.key(row, u, h) - x);
    auto* const d_value = dx + (at.value(row, u, h) - x);
    auto const factor   = 1 / sqrtf(static_cast<float>(w));
    for (std::size_t c = 0; c < w; ++c) {
      auto by_key = 0.0F, by_value = 0.0F;
      for (auto t = of.first_query(u); t < of.steps; ++t) {
        by_key += scores[first + t * of.steps + u] * at.query(row, t, h)[c];
        by_value += kept[first + t * of.steps + u] * dy[(row * of.steps + t) * of.width + h * w + c];
      }
      d_key[c] += factor * by_key;
      d_value[c] += by_value;
    }
  });
}

}  // namespace chorale::cuda::launch
