// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/layer.hpp>

namespace chorale::nn {

namespace detail {

/// y = f(x), element by element; x and y have the same shape.
template <Activation F> struct Elementwise {
  static constexpr bool monotone      = differentiates_from_y(F);  // such functions never decrease
  static constexpr bool each_position = true, each_element = true;

  template <class In> static constexpr void check() {}  // takes any shape

  template <class In> using apply = SameShape<In>;

  template <class D, class In, int AlphaPercent = 0> struct stage_with : Kernels<D>::Activate {
    static constexpr bool overwrites = differentiates_from_y(F), keeps_y = differentiates_from_y(F);
    explicit stage_with(Site<D> const& site)
        : Kernels<D>::Activate{site.runtime, site.in, F, static_cast<float>(AlphaPercent) / 100.0F} {}
  };
  template <class D, class In> using stage = stage_with<D, In>;
};

}  // namespace detail

/// max(x, 0)
struct ReLU : detail::Elementwise<Activation::relu>, Layer<ReLU> {
  static constexpr std::string_view name = "re_lu";
};

/// x where positive, else Percent / 100 · x. Keras' default slope is 0.3.
template <int Percent = 30> struct LeakyReLU : detail::Elementwise<Activation::leaky_relu>, Layer<LeakyReLU<Percent>> {
  static constexpr std::string_view name = "leaky_re_lu";
  template <class In> static constexpr void check() {
    static_assert(Percent >= 0, "chorale: LeakyReLU<Percent> needs a slope of at least 0");
  }
  template <class D, class In> using stage = detail::Elementwise<Activation::leaky_relu>::stage_with<D, In, Percent>;
};

/// x where positive, else exp(x) - 1
struct ELU : detail::Elementwise<Activation::elu>, Layer<ELU> {
  static constexpr std::string_view name   = "elu";
  template <class D, class In> using stage = detail::Elementwise<Activation::elu>::stage_with<D, In, 100>;
};

/// tanh(x)
struct Tanh : detail::Elementwise<Activation::tanh>, Layer<Tanh> {
  static constexpr std::string_view name = "tanh";
};

/// 1 / (1 + exp(-x))
struct Sigmoid : detail::Elementwise<Activation::sigmoid>, Layer<Sigmoid> {
  static constexpr std::string_view name = "sigmoid";
};

/// log(1 + exp(x))
struct Softplus : detail::Elementwise<Activation::softplus>, Layer<Softplus> {
  static constexpr std::string_view name = "softplus";
};

/// x · Φ(x), exact
struct GELU : detail::Elementwise<Activation::gelu>, Layer<GELU> {
  static constexpr std::string_view name = "gelu";
};

/// GELU with tanh in place of Φ, as GPT-2 has it: x / (1 + exp(-√(8 / π) (x + 0.044715 x³))).
///
/// source    tf.keras.activations.gelu(approximate=True); torch.nn.GELU(approximate="tanh")
struct GELUTanh : detail::Elementwise<Activation::gelu_tanh>, Layer<GELUTanh> {
  static constexpr std::string_view name = "gelu_tanh";
};

/// x / (1 + exp(-x)), also called swish
struct SiLU : detail::Elementwise<Activation::silu>, Layer<SiLU> {
  static constexpr std::string_view name   = "silu";
  template <class D, class In> using stage = detail::Elementwise<Activation::silu>::stage_with<D, In, 100>;
};

/// exp(x) / Σ exp(x), over each row. At the end of a network it needs a loss of probabilities, such as
/// loss::SparseCrossEntropyOfProbabilities; without Softmax, loss::SparseCrossEntropy learns the same from logits.
///
/// x, y    (B, N); (B, .., N) in a Graph, over the last dimension
struct Softmax : Layer<Softmax> {
  static constexpr std::string_view name    = "softmax";
  static constexpr bool over_last_dimension = true;
  static constexpr bool gives_probabilities = true;

  template <class In> static constexpr void check() {
    static_assert(In::rank == 1,
                  "chorale: Softmax takes (B, N) but the layer before gives an image; "
                  "put nn::Flatten before it");
  }

  template <class In> using apply = SameShape<In>;

  template <class D, class In> struct stage : Kernels<D>::Softmax {
    static constexpr bool overwrites = true, keeps_y = true;
    explicit stage(Site<D> const& site) : Kernels<D>::Softmax{site.runtime, site.in} {}
  };
};

// In the call operator of a Graph: functions for layers without variables.

/// max(x, 0), element by element
template <class D, class O> constexpr auto relu(Tensor<D, O> x) { return ReLU{}(x); }
/// tanh(x), element by element
template <class D, class O> constexpr auto tanh(Tensor<D, O> x) { return Tanh{}(x); }
/// 1 / (1 + exp(-x)), element by element
template <class D, class O> constexpr auto sigmoid(Tensor<D, O> x) { return Sigmoid{}(x); }
/// x · Φ(x), element by element
template <class D, class O> constexpr auto gelu(Tensor<D, O> x) { return GELU{}(x); }
/// GELU with tanh in place of Φ, element by element
template <class D, class O> constexpr auto gelu_tanh(Tensor<D, O> x) { return GELUTanh{}(x); }
/// x / (1 + exp(-x)), element by element
template <class D, class O> constexpr auto silu(Tensor<D, O> x) { return SiLU{}(x); }
/// exp(x) / Σ exp(x), over the last dimension
template <class D, class O> constexpr auto softmax(Tensor<D, O> x) { return Softmax{}(x); }

}  // namespace chorale::nn
