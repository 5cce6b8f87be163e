// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/matmul.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>

namespace chorale {

/// What a device, or several, can do in a second at best.
struct MachineSpeed {
  double products = 0;  // multiplications of a large matrix product
  double bytes    = 0;  // read and written by a = b + s c

  MachineSpeed& operator+=(MachineSpeed const& other) {
    products += other.products;
    bytes += other.bytes;
    return *this;
  }
};

namespace cpu {

/// Measures this thread's device: a matrix product of oneDNN in float, and the triad of McCalpin's STREAM. Called in
/// Cpu::Scope, on all devices at the same time if they will compute at the same time.
///
/// moved     bytes over which the triad runs: as in a step, so that a step which fits a cache is compared with it.
///           Between 96 KiB and 96 MiB
/// returns   the best of six rounds
/// cost      about 50 ms, and 200 ms with 96 MiB, most of them to get the memory
inline MachineSpeed measure_speed(Cpu const& device, std::size_t moved) {
  constexpr std::size_t n = 512;
  auto const numbers      = std::clamp(moved / 12, std::size_t{8} << 10, std::size_t{8} << 20) / 16 * 16;
  auto const memory       = device.allocate((3 * numbers + 3 * n * n) * sizeof(float));
  auto* const a           = reinterpret_cast<float*>(memory.data());
  auto* const m           = a + 3 * numbers;
  std::fill_n(a, 3 * numbers + 3 * n * n, 0.5F);
  auto const least = [](int rounds, auto&& work) {
    auto seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < rounds; ++i) {
      auto const start = std::chrono::steady_clock::now();
      work();
      seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return seconds;
  };
  auto const of_product = least(6, [&] { matmul(n, n, n, {m, n}, {m + n * n, n}, {m + 2 * n * n, n, 1, 0}); });
  auto const parts      = std::max(Cpu::threads_here(), 1);
  auto const of_triad   = least(6, [&] {
    Cpu::each(parts, [&](std::ptrdiff_t i) {
      auto const part     = share(numbers, static_cast<int>(i), parts);
      auto* const to      = a + part.begin;
      auto const* const b = a + numbers + part.begin;
      auto const* const c = a + 2 * numbers + part.begin;
      for (std::size_t k = 0; k < part.size(); ++k) to[k] = b[k] + 0.25F * c[k];
    });
  });
  return {.products = static_cast<double>(n * n * n) / of_product,
          .bytes    = static_cast<double>(3 * numbers * sizeof(float)) / of_triad};
}

}  // namespace cpu
}  // namespace chorale
