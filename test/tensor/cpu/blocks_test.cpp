// SPDX-License-Identifier: Apache-2.0
//
// How the threads of a block of a GPU add up, on the CPU: a thread for each of theirs, which wait for one another where
// a block does. ThreadSanitizer sees a wait that is missing.
#include <catch2/catch.hpp>

#include <barrier>
#include <cstddef>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

struct Extent {
  unsigned x = 1, y = 1;
};
thread_local Extent threadIdx, blockIdx;
Extent gridDim, blockDim;
std::barrier<> block{256};

void __syncthreads() { block.arrive_and_wait(); }

}  // namespace

#define __global__
#define __device__
#define __shared__ static
#include "include/chorale/tensor/cuda/block_kernels.cuh"
#undef __global__
#undef __device__
#undef __shared__

using namespace chorale::cuda::launch::detail;

namespace {

/// Runs kernel() as every thread of a grid, one block after the other.
template <class Kernel> void launch(Extent grid, Kernel kernel) {
  gridDim  = grid;
  blockDim = {threads};
  auto all = std::vector<std::thread>{};
  for (unsigned thread = 0; thread < threads; ++thread)
    all.emplace_back([=] {
      threadIdx = {thread, 0};
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) {
          blockIdx = {x, y};
          kernel();
          block.arrive_and_wait();  // the next one has the same shared memory
        }
    });
  for (auto& thread : all) thread.join();
}

/// Whole numbers, so that a sum has no order.
double value(std::size_t i) { return static_cast<double>(i * 7919 % 1013) - 500; }

}  // namespace

TEST_CASE("a grid looks at every element once, however many there are", "[tensor]") {
  for (std::size_t const n : {1U, 255U, 256U, 257U, 2'000U}) {
    auto seen = std::vector<int>(n);
    launch({3}, [&] { run_each(n, [&](std::size_t i) { ++seen[i]; }); });
    CHECK(seen == std::vector<int>(n, 1));
  }
}

TEST_CASE("a grid maps every element of arrays once, by itself or with its neighbours", "[tensor]") {
  auto const check = [](auto width, std::size_t rows, std::size_t columns) {
    constexpr auto N = decltype(width)::value;
    auto const n     = columns == 0 ? rows : rows * columns;
    auto x = std::vector<float>(n), y = x, z = x, want_y = x, want_z = x;
    auto of_columns = std::vector<float>(columns + N);
    for (std::size_t c = 0; c < columns; ++c) of_columns[c] = static_cast<float>(c) / 8;
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(value(i)), y[i] = static_cast<float>(i);
      want_y[i] = y[i] + (columns == 0 ? 0 : of_columns[i % columns]);
      want_z[i] = x[i] * 2 + static_cast<float>(i);
    }
    launch({2}, [&] {
      run_map<N>(
          n, columns,
          [](float from, float& change, float& to, float of_column, std::size_t i) {
            change += of_column;
            to = from * 2 + static_cast<float>(i);
          },
          read(x.data()), changed(y.data()), written(z.data()), of_column(of_columns.data()), index_of_each);
    });
    INFO(N << " side by side, " << rows << " of " << columns);
    CHECK(y == want_y);
    CHECK(z == want_z);
  };
  using One  = std::integral_constant<unsigned, 1>;
  using Four = std::integral_constant<unsigned, 4>;
  for (std::size_t const n : {1U, 3U, 4U, 2'047U, 2'048U, 2'050U, 5'003U}) check(One{}, n, 0), check(Four{}, n, 0);
  for (std::size_t const rows : {1U, 7U, 300U})  // 512 threads; of 24 columns, 508 work
    for (std::size_t const columns : {4U, 12U, 24U, 500U}) check(One{}, rows, columns), check(Four{}, rows, columns);
  for (std::size_t const rows : {1U, 500U}) check(One{}, rows, 5), check(Four{}, rows, 2'048);
}

TEST_CASE("memory of floats lies for four, or does not; of halves it is eight", "[tensor]") {
  alignas(16) float x[8]{};
  CHECK(widest<decltype(read(x)), decltype(index_of_each)>() == 4);
  CHECK(widest<decltype(read(x)), Array<Use::write, short>>() == 4);
  CHECK(widest<Array<Use::write, short>, decltype(of_column(x))>() == 8);
  CHECK(lies_for<4>(read(x)));
  CHECK(lies_for<4>(read(x + 4)));
  CHECK_FALSE(lies_for<4>(read(x + 2)));
  CHECK(lies_for<1>(read(x + 1)));
}

TEST_CASE("blocks turn a matrix tile by tile", "[tensor]") {
  for (std::size_t const rows : {1U, 31U, 32U, 70U})
    for (std::size_t const columns : {1U, 9U, 64U, 65U}) {
      auto turned = std::vector<float>(rows * columns, -1), want = turned;
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c) want[c * rows + r] = static_cast<float>(value(r * columns + c));
      auto const tiles = [](std::size_t n) { return static_cast<unsigned>((n + side_of_tile - 1) / side_of_tile); };
      launch({tiles(columns), tiles(rows)}, [&] {
        run_turn(
            rows, columns, [](std::size_t i) { return static_cast<float>(value(i)); },
            [&](std::size_t i, float to) { turned[i] = to; });
      });
      CHECK(turned == want);
    }
}

TEST_CASE("blocks add up their parts of all elements", "[tensor]") {
  for (unsigned const parts : {1U, 4U})
    for (std::size_t const n : {0U, 1U, 255U, 256U, 3'000U}) {
      auto sums = std::vector<float>(parts, -1), want = std::vector<float>(parts);
      for (std::size_t i = 0; i < n; ++i) want[i / threads % parts] += static_cast<float>(value(i));
      launch({parts}, [&] { run_sum(n, sums.data(), value); });
      CHECK(sums == want);
    }
}

TEST_CASE("blocks add up columns, in parts of rows", "[tensor]") {
  for (std::size_t const columns : {1U, 31U, 32U, 70U})
    for (std::size_t const rows : {1U, 7U, 8U, 9U, 100U})
      for (std::size_t const parts : {1U, 3U, 16U}) {  // of which some may have no rows
        auto const per = (rows + parts - 1) / parts;
        auto sums = std::vector<double>(2 * parts * columns, -1), want = std::vector<double>(2 * parts * columns);
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t column = 0; column < columns; ++column)
            for (std::size_t n = 0; n < 2; ++n)
              want[(row / per * columns + column) * 2 + n] += value(row * columns + column) + static_cast<double>(n);
        launch(
            {static_cast<unsigned>((columns + columns_of_block - 1) / columns_of_block), static_cast<unsigned>(parts)},
            [&] {
              run_columns<2>(
                  rows, columns, per,
                  [&](std::size_t row, std::size_t column, double* to) {
                    to[0] += value(row * columns + column);
                    to[1] += value(row * columns + column) + 1;
                  },
                  [&](std::size_t part, std::size_t column, double const* from) {
                    for (std::size_t n = 0; n < 2; ++n) sums[(part * columns + column) * 2 + n] = from[n];
                  });
            });
        CHECK(sums == want);
      }
}
