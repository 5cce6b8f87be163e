// SPDX-License-Identifier: Apache-2.0
//
// Layers made of a layer: one that reads a sequence in both directions, and one for each step of a sequence.
#pragma once

#include <chorale/nn/layers/gru.hpp>
#include <chorale/nn/layers/lstm.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/layers/recurrent.hpp>
#include <chorale/nn/layers/simple_rnn.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <type_traits>

namespace chorale::nn {

namespace detail {

/// Stands for a layer that was refused, so that there is one error.
struct Passed {
  constexpr auto operator()(auto x) const { return x; }
};

/// A recurrent layer with the option Reverse.
template <class L> struct Reversed {
  using type = Passed;
};
template <int Units, class... Options> struct Reversed<LSTM<Units, Options...>> {
  using type = LSTM<Units, Options..., Reverse>;
};
template <int Units, class... Options> struct Reversed<GRU<Units, Options...>> {
  using type = GRU<Units, Options..., Reverse>;
};
template <int Units, class... Options> struct Reversed<SimpleRNN<Units, Options...>> {
  using type = SimpleRNN<Units, Options..., Reverse>;
};

/// Checks the layer of a Bidirectional. A function, as clang abandons a class with a failed static_assert.
template <class L> constexpr bool reads_both_ways() {
  constexpr bool fits = !std::is_same_v<typename Reversed<L>::type, Passed>;
  static_assert(fits, "chorale: Bidirectional<L> takes an LSTM, a GRU or a SimpleRNN");
  return fits;
}
/// Checks the layer of a TimeDistributed, which takes each vector of the last dimension as a row.
template <class L> constexpr auto for_each_step() {
  constexpr bool fits = requires { requires L::over_last_dimension; };
  static_assert(fits,
                "chorale: TimeDistributed<L> takes a layer that works on the last dimension, such as nn::Dense. Others "
                "that are functions of each element, such as nn::ReLU, need it nowhere");
  return std::type_identity<std::conditional_t<fits, L, Passed>>{};
}

}  // namespace detail

/// Two layers of one kind that read a sequence forward and backward, their states side by side.
///
/// L         LSTM, GRU or SimpleRNN, with or without Sequences
/// x         (B, T, C)
/// y         (B, 2 Units), or (B, T, 2 Units): what was read forward, then what was read backward
/// keeps     it has the variables of two layers, "lstm/.." and "lstm_1/.."
/// source    Schuster & Paliwal, 1997; tf.keras.layers.Bidirectional, with its default merge_mode="concat"
template <class L> struct Bidirectional {
  L forward;
  typename detail::Reversed<L>::type backward;

  constexpr auto operator()(auto x) const {
    if constexpr (detail::reads_both_ways<L>()) {
      auto const there = forward(x);  // before backward(x): order of variables
      if constexpr (std::is_same_v<typename decltype(there)::of, Refused>) return there;
      else return concatenate(there, backward(x));
    } else {
      return x;
    }
  }
};

/// A layer for each step of a sequence (B, T, C): the layer itself, as nn::Dense and nn::Softmax work on the last
/// dimension of what comes in.
///
/// source    tf.keras.layers.TimeDistributed
template <class L> using TimeDistributed = typename decltype(detail::for_each_step<L>())::type;

}  // namespace chorale::nn
