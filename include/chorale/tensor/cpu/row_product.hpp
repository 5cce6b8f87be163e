// SPDX-License-Identifier: Apache-2.0
//
// Sums in an order that does not depend on the number of rows, for layers that work on one step of a sequence at a time.
// A product of oneDNN with M = 1 and one with M = 32 give a row different bits.
#pragma once

#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace chorale::cpu {

/// Number of partial sums, which are added in a fixed order at the end.
inline constexpr std::size_t lanes = 16;

/// The sum of f(0) .. f(n - 1), in an order that depends on n alone.
template <class F>
float sum_of(std::size_t n, F&& f) {
  auto part        = std::array<float, lanes>{};
  auto const whole = n / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes)
    for (std::size_t k = 0; k < lanes; ++k) part[k] += f(i + k);
  for (std::size_t i = whole; i < n; ++i) part[i - whole] += f(i);
  for (std::size_t width = lanes / 2; width > 0; width /= 2)
    for (std::size_t k = 0; k < width; ++k) part[k] += part[k + width];
  return part[0];
}

namespace detail {

/// y += a b of Rows rows of a, K of its columns, which are those at `a`.
template <std::size_t Rows, std::size_t K>
void add_product(std::size_t n, float const* a, std::size_t a_stride, float const* b, std::size_t b_stride, float* y,
                 std::size_t y_stride) {
  auto factor = std::array<std::array<float, K>, Rows>{};
  for (std::size_t r = 0; r < Rows; ++r)
    for (std::size_t k = 0; k < K; ++k) factor[r][k] = a[r * a_stride + k];
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t r = 0; r < Rows; ++r) {
      auto sum = y[r * y_stride + j];
      for (std::size_t k = 0; k < K; ++k) sum += factor[r][k] * b[k * b_stride + j];
      y[r * y_stride + j] = sum;
    }
}

/// y += a b of Rows rows of a.
template <std::size_t Rows>
void add_product(std::size_t n, std::size_t k, Factor a, Factor b, Product c) {
  auto i = std::size_t{0};
  for (; i + 4 <= k; i += 4)
    add_product<Rows, 4>(n, a.data + i, a.stride, b.data + i * b.stride, b.stride, c.data, c.stride);
  for (; i < k; ++i)
    add_product<Rows, 1>(n, a.data + i, a.stride, b.data + i * b.stride, b.stride, c.data, c.stride);
}

}  // namespace detail

/// c += a b. A row of c has the same bits whatever rows are beside it: each number adds its products in the order of k.
///
/// a, b, c   (M, K), (K, N), (M, N). b may be transposed; alpha and beta of c are not used
/// cost      b is read in tiles that stay in the first-level cache; those of a transposed b are copied to 16 KiB of stack
inline void add_row_product(std::size_t m, std::size_t n, std::size_t k, Factor a, Factor b, Product c) {
  constexpr std::size_t tile = 64;
  auto turned                = std::array<float, tile * tile>{};
  for (std::size_t from = 0; from < k; from += tile)
    for (std::size_t j = 0; j < n; j += tile) {
      auto const depth = std::min(tile, k - from), width = std::min(tile, n - j);
      auto part        = Factor{b.data + from * b.stride + j, b.stride};
      if (b.transposed) {
        for (std::size_t x = 0; x < width; ++x)
          for (std::size_t i = 0; i < depth; ++i) turned[i * tile + x] = b.data[(j + x) * b.stride + from + i];
        part = {turned.data(), tile};
      }
      auto r          = std::size_t{0};
      auto const rows = [&] { return Factor{a.data + r * a.stride + from, a.stride}; };
      auto const to   = [&] { return Product{c.data + r * c.stride + j, c.stride}; };
      for (; r + 2 <= m; r += 2) detail::add_product<2>(width, depth, rows(), part, to());
      for (; r < m; ++r) detail::add_product<1>(width, depth, rows(), part, to());
    }
}

}  // namespace chorale::cpu
