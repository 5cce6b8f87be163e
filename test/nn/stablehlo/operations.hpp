// SPDX-License-Identifier: Apache-2.0
//
// Operations with operands for them, to compare what different things make of them.
#pragma once

#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/core/random.hpp>
#include <chorale/nn/lowering/program.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hlo_operations {

using namespace chorale::nn::stablehlo;
using chorale::test::Numbers;

/// An operation: its operands' dimensions, and how it is written.
struct Differentiable {
  std::string name;
  std::vector<Dims> dims;
  std::function<Value(std::vector<Value> const&)> write;
  double low = -1, high = 1;  // of the operands' numbers
};

inline Numbers random(std::size_t n, std::uint64_t stream, double low = -1, double high = 1) {
  auto made = Numbers(n);
  for (std::size_t i = 0; i < n; ++i)
    made[i] = chorale::Random{7, stream}.uniform(i, static_cast<float>(low), static_cast<float>(high));
  return made;
}

inline Value ids(Program& p, Dims const& dims, int rows) {  // 0, 2, 4, .. modulo the rows
  auto const all = reshape(p.iota(Element::i32, {count(dims)}, 0), dims) * 2.0;
  return remainder(all, detail::like(all, rows));
}

/// All operations that have a gradient.
inline std::vector<Differentiable> operations() {
  auto const strided = Convolved{.stride = {2, 1}, .low = {1, 0}, .high = {1, 2}, .dilation = {1, 2}};
  auto const spread  = Convolved{.low = {2, 1}, .high = {1, 1}, .spread = {2, 3}};
  auto const grouped = Convolved{.stride = {1, 2}, .low = {0, 1}, .high = {0, 1}, .groups = 2};
  return {
      {"convert", {{3}}, [](auto& x) { return x[0].program->append({Kind::convert, Element::f32, {3}, {x[0].id}}); }},
      {"reshape", {{2, 3}}, [](auto& x) { return reshape(x[0], {3, 2}); }},
      {"broadcast", {{2, 3}}, [](auto& x) { return broadcast(x[0], {2, 4, 3, 2}, {0, 2}); }},
      {"transpose", {{2, 3, 4}}, [](auto& x) { return transpose(x[0], {2, 0, 1}); }},
      {"reverse", {{2, 3}}, [](auto& x) { return reverse(x[0], {1}); }},
      {"slice", {{5, 7}}, [](auto& x) { return slice(x[0], {1, 0}, {4, 6}, {1, 2}); }},
      {"slices",
       {{7, 3}},
       [](auto& x) {  // side by side, with a gap, one over others
         auto const of     = [&](std::int64_t from, std::int64_t to) { return slice_of(x[0], 0, from, to); };
         auto const column = reshape(slice_of(x[0], 1, 1, 2), {7});
         return concatenate({of(5, 7), of(0, 2), of(2, 4), of(1, 6), broadcast(column, {7, 3}, {0})}, 0);
       }},
      {"concatenate", {{2, 1}, {2, 3}}, [](auto& x) { return concatenate({x[0], x[1], x[0]}, 1); }},
      {"pad", {{2, 3}}, [](auto& x) { return pad(x[0], 4, {1, 0}, {0, 2}, {1, 2}); }},
      {"add", {{3}, {3}}, [](auto& x) { return x[0] + x[1]; }},
      {"subtract", {{3}, {3}}, [](auto& x) { return x[0] - x[1]; }},
      {"multiply", {{3}, {3}}, [](auto& x) { return x[0] * x[1]; }},
      {"divide", {{3}, {3}}, [](auto& x) { return x[0] / x[1]; }, 0.5, 2},
      {"maximum", {{6}, {6}}, [](auto& x) { return maximum(x[0], x[1]); }},
      {"minimum", {{6}, {6}}, [](auto& x) { return minimum(x[0], x[1]); }},
      {"power", {{3}}, [](auto& x) { return power(x[0], detail::like(x[0], 2.5)); }, 0.5, 2},
      {"negate", {{3}}, [](auto& x) { return -x[0]; }},
      {"abs", {{6}}, [](auto& x) { return abs(x[0]); }},
      {"sign", {{6}}, [](auto& x) { return sign(x[0]); }},
      {"exponential", {{3}}, [](auto& x) { return exp(x[0]); }},
      {"log", {{3}}, [](auto& x) { return log(x[0]); }, 0.5, 2},
      {"log_plus_one", {{3}}, [](auto& x) { return log1p(x[0]); }, -0.5, 1},
      {"exponential_minus_one", {{3}}, [](auto& x) { return expm1(x[0]); }},
      {"sqrt", {{3}}, [](auto& x) { return sqrt(x[0]); }, 0.5, 2},
      {"rsqrt", {{3}}, [](auto& x) { return rsqrt(x[0]); }, 0.5, 2},
      {"tanh", {{3}}, [](auto& x) { return tanh(x[0]); }},
      {"logistic", {{3}}, [](auto& x) { return logistic(x[0]); }},
      {"erfc", {{3}}, [](auto& x) { return erfc(x[0]); }},
      {"floor", {{6}}, [](auto& x) { return floor(x[0]); }},
      {"cosine", {{3}}, [](auto& x) { return cos(x[0]); }},
      {"sine", {{3}}, [](auto& x) { return sin(x[0]); }},
      {"select", {{6}, {6}}, [](auto& x) { return select(compare(x[0], "LT", 0.1), x[0] * x[1], x[1]); }},
      {"sum", {{2, 3, 4}}, [](auto& x) { return sum(x[0], {0, 2}); }},
      {"largest", {{2, 3, 4}}, [](auto& x) { return largest(x[0], {2, 0}); }},
      {"sums of windows", {{2, 5, 7}}, [](auto& x) { return windows(x[0], "add", {1, 2, 3}, {1, 2, 1}); }},
      {"largest of windows", {{2, 5, 7}}, [](auto& x) { return windows(x[0], "maximum", {1, 3, 2}, {1, 2, 3}); }},
      {"matmul", {{2, 3, 4}, {4, 5}}, [](auto& x) { return matmul(x[0], x[1]); }},
      {"dot with batches",
       {{2, 3, 4, 5}, {5, 3, 6, 2}},
       [](auto& x) { return dot(x[0], x[1], {3}, {0}, {1, 0}, {1, 3}); }},
      {"dot over two", {{4, 2, 3}, {2, 5, 3}}, [](auto& x) { return dot(x[0], x[1], {2, 1}, {2, 0}); }},
      {"convolution", {{2, 5, 6, 3}, {3, 2, 3, 4}}, [=](auto& x) { return convolution(x[0], x[1], strided); }},
      {"transposed convolution",
       {{2, 3, 2, 3}, {3, 2, 3, 2}},
       [=](auto& x) { return convolution(x[0], x[1], spread); }},
      {"convolution in groups",
       {{2, 4, 5, 4}, {3, 2, 2, 6}},
       [=](auto& x) { return convolution(x[0], x[1], grouped); }},
      {"gather", {{5, 2}}, [](auto& x) { return gather(x[0], ids(*x[0].program, {2, 3}, 5)); }},
      {"scatter", {{2, 3, 2}}, [](auto& x) { return scatter(x[0], ids(*x[0].program, {2, 3}, 5), 5); }},
      {"scatter into",
       {{5, 2}, {4, 2}},
       [](auto& x) {
         auto const to = ids(*x[0].program, {4}, 5);
         return x[0].program->append({Kind::scatter, Element::f32, {5, 2}, {x[0].id, to.id, x[1].id}});
       }},
  };
}

}  // namespace hlo_operations
