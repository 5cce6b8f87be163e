// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

namespace chorale::nn {

namespace detail {

template <class... Dims>
constexpr VariableSpec spec_of(std::string_view name, Init init, int in, int out, Dims... dims) {
  static_assert(sizeof...(Dims) <= 4, "chorale: a variable has at most 4 dimensions");
  if constexpr (sizeof...(Dims) > 4) return {};
  else
    return {.name    = name,
            .dims    = {dims...},
            .rank    = static_cast<int>(sizeof...(Dims)),
            .init    = init,
            .fan_in  = in,
            .fan_out = out};
}

}  // namespace detail

/// A variable of a layer that begins with ones: nn::ones("gamma", 64) has shape (64).
constexpr VariableSpec ones(std::string_view name, auto... dims) {
  return detail::spec_of(name, Init::ones, 1, 1, dims...);
}
/// A variable of a layer that begins with zeros: nn::zeros("bias", 64) has shape (64).
constexpr VariableSpec zeros(std::string_view name, auto... dims) {
  return detail::spec_of(name, Init::zeros, 1, 1, dims...);
}
/// A matrix of a layer, (in, out), with first values as Glorot & Bengio choose them.
constexpr VariableSpec glorot_uniform(std::string_view name, int in, int out) {
  return detail::spec_of(name, Init::glorot_uniform, in, out, in, out);
}
/// A matrix of a layer, (in, out), whose rows, or columns if there are fewer, are orthogonal and of length 1.
constexpr VariableSpec orthogonal(std::string_view name, int in, int out) {
  return detail::spec_of(name, Init::orthogonal, in, out, in, out);
}
/// The bias of an LSTM, (4 units): ones for the second gate, which forgets, and zeros for the others.
constexpr VariableSpec unit_forget(std::string_view name, int size) {
  return detail::spec_of(name, Init::unit_forget, 1, 1, size);
}
/// A table of vectors, (rows, width), with first values uniform between -0.05 and 0.05, as tf.keras.layers.Embedding.
constexpr VariableSpec table(std::string_view name, int rows, int width) {
  return detail::spec_of(name, Init::he_uniform, 2400, 1, rows, width);  // the limit is sqrt(6 / 2400)
}

namespace detail {

/// The object of a layer that keeps its own memory from forward to backward.
template <class L> struct StateOf {
  struct type {};
  static constexpr bool exists = false;
};
template <class L> requires requires { typename L::state; } struct StateOf<L> {
  using type                   = typename L::state;
  static constexpr bool exists = true;
};

}  // namespace detail

/// What the functions of a layer that computes on the host work on: spans over a whole batch, row after row.
///
///   struct Scaled : nn::Layer<Scaled> {                                  // y = gamma x
///     static constexpr std::string_view name = "scaled";
///     static constexpr auto output(auto x) { return x; }                // the type of y: an Of, or Several<Of, ..>
///     static constexpr auto variables(auto x) { return std::array{nn::ones("gamma", x.back)}; }
///     static void forward(auto& at);
///     static void backward(auto& at);
///   };
///
/// A layer may also have
///
///   check<O...>()       a function whose static_asserts refuse inputs
///   is_sized            false for a size of zero, which check_size() refuses: nothing else is asked of the layer then
///   kept(O...)          floats of a row that forward leaves for backward, in `kept`
///   keeps_nothing       true if `kept` is only scratch: backward finds nothing in it that forward wrote
///   products(O...)      multiplications of one row in forward
///   inner_products(O...)    of these, those whose factors the layer itself computes, as a state times a variable
///   overwrites          true if y may be x, and backward sets dx, which may be dy, in place of adding to it
///   keeps_x, keeps_y    whether backward reads x, by default true, and y, by default false
///   gives_rows          true if backward can give the gradients of its variables as rows: see RowGradients. They are
///                       rows where all layers that share the variables give them as rows
///   each_element        true if the layer computes each number by itself, so that it takes a part of every vector
///   each_position       true if the layer computes each position of a sequence by itself, so that it takes ragged
///                       values: to it the positions of all rows are rows
///   reads_lengths       true if the layer takes ragged values Of<T, -1, ..> as they are: spans hold the positions of
///                       the first row, then of the second and so on, without padding; at.lengths() has their
///                       numbers
///   kept_for(at)        in place of kept, for ragged inputs: floats that forward leaves for backward
///   queue_forward<D>(at), queue_backward<D>(at)
///                       forward and backward on a device that QueuesWork: they queue kernels of Kernels<D>. Spans are
///                       memory of the device; d_in are zeros, and added to, whatever `overwrites` says
///   kept_queued(O...)   in place of kept, on such a device
///   axis                a type, Axis<name, ranks>: the layer is split over the ranks of that axis, and exchanges values
///                       with them through group_along<axis>(at.axes)
///   spread(x, ..)       of such a layer: what ranks have of y, by what they have of each input, or nothing: see
///                       docs/44-distribution.md. A static function, and no template
///   spreads_as          which rule holds for the layer along axes over which it is not split: see nn::SpreadsAs
///   other_rows          true if the ranks along `axis` may have different rows of the batch: see AxisGroup
///   whole_share         true if what comes of a row depends on other rows, as where they take places from one another:
///                       all rows of a share are computed at once
///   state               a type whose object `at.state` is one for each call: memory that the layer lets grow, kept from
///                       forward to backward. For layers on the host, whose needs their inputs alone tell
///   look(at)            refuses an input of the network that the layer reads, in memory of the host, before such a
///                       device has it
///
/// keeps   before backward, d_in are zeros, and dv are sums over other calls: add to both. A span of d_in is empty where
///         nobody needs that gradient
template <class L, class In, class Out> struct Place;
// Its one specialisation.
template <class L, class... In, class... Out> struct Place<L, detail::List<In...>, detail::List<Out...>> {
  static constexpr auto specs = graph::Described<L, In...>::variables();
  using X                     = std::tuple_element_t<0, std::tuple<In...>>;

  std::size_t rows = 0, first = 0;  // first row: within the share of the replica
  std::tuple<Span<typename In::type const>...> in;
  std::tuple<Span<typename Out::type>...> out;
  std::array<Span<float>, sizeof...(In)> d_in;
  std::array<Span<float>, sizeof...(Out)> d_out;
  std::array<Span<float>, specs.size()> v, dv;        // variables, and their gradients
  std::array<RowGradients*, specs.size()> rows_of{};  // not null: add rows to it, dv is empty
  Span<float> kept;
  bool training = false;
  StepNumbers now;                                               // seed, step, first row: for random numbers
  AxisGroups axes;                                               // see group_along
  typename detail::StateOf<L>::type* state = nullptr;            // of a layer that has one
  std::array<std::string (*)(), sizeof...(In)> fields{};         // fields that ids come from, or null
  std::array<graph::RaggedRows const*, sizeof...(In)> ragged{};  // of ragged inputs; null if it is not
  std::uint64_t call = 0;                                        // number of the call: a stream of numbers

  /// Positions of each row of input i; empty if that has a fixed shape. They add up to the positions of its span.
  Span<int const> lengths(std::size_t i = 0) const {
    return ragged[i] == nullptr ? Span<int const>{} : ragged[i]->lengths;
  }

  /// Numbers of one position of the first input: C of (B, T, C).
  static constexpr std::size_t position_size() {
    if constexpr (X::is_ragged || X::rank == 0) return X::size;
    else return X::size / static_cast<std::size_t>(X::dims[0]);
  }

  /// Calls f(row, first, n) for each row: its positions of the first input are [first, first + n).
  void each_row(auto&& f) const {
    if (auto const* const all = ragged[0]; all != nullptr) {
      for (std::size_t r = 0; r < all->lengths.size(); ++r)
        f(r, all->starts[r], static_cast<std::size_t>(all->lengths[r]));
    } else if constexpr (X::rank > 0 && !X::is_ragged) {
      constexpr auto n = static_cast<std::size_t>(X::dims[0]);
      for (std::size_t r = 0; r < rows; ++r) f(r, r * n, n);
    }
  }

  // The first input, the first output and their gradients.
  auto x() const { return std::get<0>(in); }
  auto y() const { return std::get<0>(out); }
  Span<float> dx() const { return d_in[0]; }
  Span<float> dy() const { return d_out[0]; }
};

/// A layer that is a function of each element: y = f(x). A user's layer derives from it and has
///
///   static constexpr std::string_view name;
///   static float f(float x);
///   static float df(float x, float y);          the derivative, from x or from y
template <class L> struct Elementwise : Layer<L> {
  static constexpr bool keeps_y = true, each_position = true, each_element = true;

  template <int... D> static constexpr auto output(Of<float, D...> x) { return x; }

  static void forward(auto& at) {
    for (std::size_t i = 0; i < at.x().size(); ++i) at.y()[i] = L::f(at.x()[i]);
  }
  static void backward(auto& at) {
    for (std::size_t i = 0; i < at.dx().size(); ++i) at.dx()[i] += at.dy()[i] * L::df(at.x()[i], at.y()[i]);
  }
};

}  // namespace chorale::nn
