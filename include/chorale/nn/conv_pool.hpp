// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/conv2d.hpp>
#include <chorale/nn/pool2d.hpp>

#include <string_view>

namespace chorale::nn::detail {

/// A convolution and the pool after it as one layer: a device may compute them slice by slice, without storing the
/// activation between them. Sequential fuses the two.
template <class Conv, class Pool>
struct ConvPool {
  static constexpr std::string_view name = Conv::name;

  template <class In>
  using between = typename Conv::template apply<In>::type;

  template <class In>
  static constexpr void check() {
    Conv::template check<In>();
    Pool::template check<between<In>>();
  }

  template <class In>
  struct apply : Conv::template apply<In> {
    using type = typename Pool::template apply<between<In>>::type;
  };

  template <class D, class In>
  struct stage : Kernels<D>::ConvPool {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::ConvPool{site.runtime, site.in, site.rows, Conv::template window_on<In>(), Conv::filters,
                               Pool::template window_on<between<In>>(), Pool::kind, site.wants_dx, Conv::biased} {}
  };
};

template <class L>
concept convolution = requires { L::filters; };
template <class L>
concept pool = requires { L::kind; };

/// A list of layers in which each convolution is fused with the pool that follows it.
template <class Done, class... Rest>
struct Fused;
template <class... Done>
struct Fused<List<Done...>> {
  using type = List<Done...>;
};
template <class... Done, class A, class... Rest>
struct Fused<List<Done...>, A, Rest...> : Fused<List<Done..., A>, Rest...> {};
template <class... Done, convolution A, pool B, class... Rest>
struct Fused<List<Done...>, A, B, Rest...> : Fused<List<Done..., ConvPool<A, B>>, Rest...> {};

}  // namespace chorale::nn::detail
