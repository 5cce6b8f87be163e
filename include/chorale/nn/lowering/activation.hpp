// SPDX-License-Identifier: Apache-2.0
//
// Activations in operations. Each has the derivative of its kernel at 0, too, where most are not smooth.
#pragma once

#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/prelu.hpp>
#include <chorale/nn/lowering/call.hpp>

namespace chorale::nn::stablehlo {

// max(x, 0), whose derivative at 0 is 0.
template <> struct Lowering<ReLU> {
  static Value write(Call& at) { return maximum(at.x(), 0); }
};
// x, or x times the slope.
template <int Percent> struct Lowering<LeakyReLU<Percent>> {
  static Value write(Call& at) {
    auto const slope = static_cast<double>(static_cast<float>(Percent) / 100.0F);
    return select(compare(at.x(), "GT", 0), at.x(), at.x() * slope);
  }
};
// x, or exp(x) - 1, which is not computed where x is large.
template <> struct Lowering<ELU> {
  static Value write(Call& at) {
    auto const above = compare(at.x(), "GT", 0);
    return select(above, at.x(), expm1(select(above, 0.0, at.x())));
  }
};
// tanh(x)
template <> struct Lowering<Tanh> {
  static Value write(Call& at) { return tanh(at.x()); }
};
// 1 / (1 + exp(-x))
template <> struct Lowering<Sigmoid> {
  static Value write(Call& at) { return logistic(at.x()); }
};
// max(x, 0) + log(1 + exp(-|x|)), where max(x, 0) is written so that its derivative at 0 is 1/2.
template <> struct Lowering<Softplus> {
  static Value write(Call& at) {
    auto const size = abs(at.x());
    return 0.5 * (at.x() + size) + log1p(exp(-size));
  }
};
// x / 2 times erfc(-x / √2).
template <> struct Lowering<GELU> {
  static Value write(Call& at) { return 0.5 * at.x() * erfc(at.x() * -0.70710678118654752); }
};
// x times the logistic function of a polynomial.
template <> struct Lowering<GELUTanh> {
  static Value write(Call& at) {
    auto const x = at.x();
    return x * logistic(1.5957691216057308 * (x + 0.044715 * (x * x * x)));
  }
};
// x times its logistic function.
template <> struct Lowering<SiLU> {
  static Value write(Call& at) { return at.x() * logistic(at.x()); }
};

namespace detail {

/// exp(x) / Σ exp(x), over the last dimension.
inline Value softmax(Value x) {
  auto const scaled = exp(x - along_first(stop_gradient(largest_last(x)), x));
  return scaled / along_first(sum_last(scaled), x);
}

}  // namespace detail

// Without the largest number of each vector, so that no exponential is infinite.
template <> struct Lowering<Softmax> {
  static Value write(Call& at) { return detail::softmax(at.x()); }
};
// x, or x times its slope.
template <class... Options> struct Lowering<PReLU<Options...>> {
  static Value write(Call& at) {
    return select(compare(at.x(), "GT", 0), at.x(), along_last(at.variables[0], at.x()) * at.x());
  }
};

}  // namespace chorale::nn::stablehlo
