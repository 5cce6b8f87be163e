// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/layer.hpp>

namespace chorale::nn {

/// Images as rows of numbers: (B, H, W, C) to (B, H · W · C), in that order.
///
/// source  tf.keras.layers.Flatten
struct Flatten : Layer<Flatten> {
  static constexpr std::string_view name = "flatten";

  template <class In> static constexpr void check() {}  // takes any shape

  template <class In> struct apply {
    using type = Shape<static_cast<int>(In::size)>;
    static constexpr std::array<VariableSpec, 0> variables{};
  };

  template <class Kernel, class D, class In> struct stage_of : Kernel {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage_of(Site<D> const& site)
        : Kernel{site.runtime, site.in, plain(site.rows), site.rows, static_cast<int>(In::size)} {}

   private:
    static auto plain(int rows) {
      if constexpr (In::rank == 3) return Kernels<D>::image(rows, In::dims[0], In::dims[1], In::dims[2]);
      else return Kernels<D>::matrix(rows, static_cast<int>(In::size));
    }
  };
  template <class D, class In> using stage = stage_of<typename Kernels<D>::ToRows, D, In>;
};

}  // namespace chorale::nn
