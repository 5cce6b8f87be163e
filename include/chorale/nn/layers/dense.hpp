// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/layer.hpp>

#include <string>
#include <string_view>

namespace chorale::nn {

/// y = x W + b
///
/// x       (B, In)                   In comes from the layer before; (B, .., In) in a Graph
/// W, b    (In, Units), (Units)      Glorot uniform or as the option says, zeros
/// y       (B, Units), (B, .., Units)
/// source  tf.keras.layers.Dense
template <int Units, class... Options> struct Dense : Layer<Dense<Units, Options...>> {
  using Layer<Dense>::Layer;

  static constexpr std::string_view name    = "dense";
  static constexpr bool over_last_dimension = true;
  static constexpr bool is_sized            = Units > 0;

  static std::string text() {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    return "Dense<" + std::to_string(Units) + "," + std::string{text_of(init)} + ">";
  }

  static constexpr void check_size() { static_assert(is_sized, "chorale: Dense<Units> needs at least one unit"); }
  template <class In> static constexpr void check() {
    static_assert((detail::initializer_option<Options> && ...),
                  "chorale: Dense takes a number of units and an initializer");
    static_assert(In::rank == 1,
                  "chorale: Dense takes (B, In) but the layer before gives an image; "
                  "put nn::Flatten before it");
  }

  template <class In> struct apply {
    using type = Shape<Units>;

    static constexpr int inputs = static_cast<int>(In::size);
    static constexpr std::array<VariableSpec, 2> variables{
        VariableSpec{"kernel", {inputs, Units}, 2, detail::init_or<Options...>(Init::glorot_uniform), inputs, Units},
        VariableSpec{"bias", {Units}, 1, Init::zeros, inputs, Units}};
    static constexpr std::size_t products = In::size * Units;
  };

  template <class D, class In> struct stage : Kernels<D>::Dense {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::Dense{site.runtime, site.in, site.rows, apply<In>::inputs, Units} {}
  };
};

}  // namespace chorale::nn
