// SPDX-License-Identifier: Apache-2.0
//
// The functions of a layer in one table: layers of kernels, and layers of two functions over a Place.
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/nn/trace/blocks_stage.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn {
struct Add;  // nn/layers/merge.hpp; its stage is here, as it adds in any layout
}
namespace chorale::nn::graph {

template <class L> constexpr bool overwrites_x() {
  if constexpr (requires { L::overwrites; }) return L::overwrites;
  else return false;
}
template <class L> constexpr bool passes_gradient() {
  if constexpr (requires { L::passes; }) return L::passes;
  else return false;
}
template <class L> constexpr bool reads_x() {
  if constexpr (requires { L::keeps_x; }) return L::keeps_x;
  else return true;
}
template <class L> constexpr bool reads_y() {
  if constexpr (requires { L::keeps_y; }) return L::keeps_y;
  else return false;
}

/// Returns Ops with the functions of class S, which is constructed at a call's place.
template <class S> constexpr Ops functions_of() {
  auto made = Ops{.size      = sizeof(S),
                  .align     = alignof(S),
                  .make      = [](void* at, StageSite const& site) { new (at) S{site}; },
                  .destroy   = [](void* at) { static_cast<S*>(at)->~S(); },
                  .workspace = [](void const* at) { return static_cast<S const*>(at)->workspace(); },
                  .bind      = [](void* at, Ports const& ports) { static_cast<S*>(at)->bind(ports); },
                  .read_from = [](void* at, std::size_t in, void const* x) { static_cast<S*>(at)->read_from(in, x); },
                  .forward   = [](void* at, Pass const& pass) { static_cast<S*>(at)->forward(pass); },
                  .backward  = [](void* at, Pass const& pass) { static_cast<S*>(at)->backward(pass); },
                  .finds =
                      [](void const* at) {
                        if constexpr (requires(S const& stage) { stage.finds(); })
                          return static_cast<S const*>(at)->finds();
                        else return Finds::always;
                      }};
  if constexpr (requires(S& stage, float* d) { stage.move(std::size_t{}, d); })
    made.move = [](void* at, std::size_t variable, float* gradient) { static_cast<S*>(at)->move(variable, gradient); };
  if constexpr (requires(S& stage, Pass const& pass) { stage.add(pass); }) {
    made.add     = [](void* at, Pass const& pass) { static_cast<S*>(at)->add(pass); };
    made.can_add = [](void const* at) { return static_cast<S const*>(at)->can_add(); };
  }
  return made;
}

/// A layer of two functions over a Place: on the host or, on a device that QueuesWork, of functions that queue its
/// kernels. A ragged value lies at the same place in each batch, and its spans are cut to the positions of the batch.
template <class D, class L, class In, class Out> class PlaceStage;
// Its one specialisation.
template <class D, class L, class... In, class... Out> class PlaceStage<D, L, List<In...>, List<Out...>> {
  static constexpr bool is_ragged = (In::is_ragged || ...) || (Out::is_ragged || ...);
  static constexpr bool in_turn   = is_ragged && !reads_lengths<L>;  // position by position
  template <class O> using Seen   = std::conditional_t<in_turn, PositionOf<O>, O>;
  static constexpr int field      = std::max({In::ragged_field...});

 public:
  explicit PlaceStage(StageSite const& site) : rows_{static_cast<std::size_t>(site.rows)}, ragged_{site.ragged} {
    at_.rows = rows_;
    at_.call = static_cast<std::uint64_t>(site.number);
    if constexpr (is_ragged) at_.ragged = {(In::is_ragged ? ragged_ + In::ragged_field : nullptr)...};
    if constexpr (in_turn) at_.rows = ragged_[field].room;
  }

  std::size_t workspace() const { return at_.rows * kept() * sizeof(float); }
  Finds finds() const {
    constexpr bool own = requires(Where const& at) { L::kept_for(at); } || detail::StateOf<L>::exists;
    if constexpr (requires { requires L::keeps_nothing; }) return Finds::nothing;
    return own || workspace() > 0 ? Finds::in_backward : Finds::nothing;
  }

  void bind(Ports const& p) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (read_from<I, In>(p.in[I].data), ...);
      ((at_.d_in[I] = span(p.in[I].gradient, rows_of<In>() * In::size)), ...);
      ((at_.fields[I] = p.in[I].field), ...);
    }(std::index_sequence_for<In...>{});
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(at_.out) = span(static_cast<typename Out::type*>(p.out[I].data), rows_of<Out>() * Out::size)), ...);
      ((at_.d_out[I] = span(p.out[I].gradient, rows_of<Out>() * Out::size)), ...);
    }(std::index_sequence_for<Out...>{});
    for (std::size_t i = 0; i < at_.specs.size(); ++i) {
      at_.v[i]       = span(static_cast<float*>(p.variables[i].data), at_.specs[i].size());
      at_.dv[i]      = span(p.variables[i].gradient, at_.specs[i].size());
      at_.rows_of[i] = p.variables[i].rows;
    }
    at_.kept = span(reinterpret_cast<float*>(p.workspace), at_.rows * kept());
  }
  void read_from(std::size_t in, void const* x) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (
          [&] {
            if (I == in) read_from<I, In>(x);
          }(),
          ...);
    }(std::index_sequence_for<In...>{});
  }
  /// Moves the gradient of a variable.
  void move(std::size_t variable, float* gradient) { at_.dv[variable] = span(gradient, at_.specs[variable].size()); }
  void forward(Pass const& pass) {
    at_.training = pass.training;
    at_.now      = pass.now;
    at_.first    = pass.first_of_share;
    at_.axes     = pass.axes;
    if constexpr (detail::StateOf<L>::exists) at_.state = &state_;
    if constexpr (is_ragged) fit();
    if constexpr (QueuesWork<D>) L::template queue_forward<D>(at_);
    else L::forward(at_);
  }
  void backward(Pass const&) {
    if constexpr (QueuesWork<D>) {
      for (auto const d : at_.d_in)
        if (!d.empty()) Kernels<D>::zero(d.size(), d.data());
      L::template queue_backward<D>(at_);
    } else {
      if constexpr (!overwrites_x<L>())
        for (auto const d : at_.d_in) std::fill(d.begin(), d.end(), 0.0F);
      L::backward(at_);
    }
  }
  /// Lets the layer refuse an input, in memory of the host, before the device has it.
  void look(std::size_t in, void const* x) {
    read_from(in, x);
    if constexpr (requires { L::look(at_); }) L::look(at_);
  }

  using Where = Place<L, List<Seen<In>...>, List<Seen<Out>...>>;

 private:
  template <std::size_t I, class O> void read_from(void const* x) {
    std::get<I>(at_.in) = span(static_cast<typename O::type const*>(x), rows_of<O>() * O::size);
  }
  template <class T> static Span<T> span(T* data, std::size_t n) { return {data, data == nullptr ? 0 : n}; }
  static constexpr std::size_t kept() {
    constexpr bool asks     = requires { L::kept(Seen<In>{}...); };
    constexpr bool asks_for = requires(Where const& at) { L::kept_for(at); };
    static_assert(
        !is_ragged || in_turn || !asks || asks_for,
        "chorale: a layer that sets reads_lengths and has kept(...) needs kept_for(at) as well: what it leaves "
        "for backward of ragged rows depends on their lengths");
    if constexpr (QueuesWork<D> && requires { L::kept_queued(In{}...); }) return L::kept_queued(In{}...);
    else if constexpr (asks && !(is_ragged && !in_turn)) return L::kept(Seen<In>{}...);
    else return 0;
  }
  /// Rows of a value; of a ragged one, its positions.
  template <class O> std::size_t rows_of() const {
    if constexpr (O::is_ragged) return ragged_[O::ragged_field].positions;
    else return rows_;
  }

  /// Cuts the spans of ragged values to the positions of the batch.
  void fit() {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(at_.in) = span(std::get<I>(at_.in).data(), rows_of<In>() * In::size)), ...);
      ((at_.d_in[I] = span(at_.d_in[I].data(), rows_of<In>() * In::size)), ...);
    }(std::index_sequence_for<In...>{});
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(at_.out) = span(std::get<I>(at_.out).data(), rows_of<Out>() * Out::size)), ...);
      ((at_.d_out[I] = span(at_.d_out[I].data(), rows_of<Out>() * Out::size)), ...);
    }(std::index_sequence_for<Out...>{});
    if constexpr (in_turn) at_.rows = ragged_[field].positions;
    if constexpr (requires(Where const& at) { L::kept_for(at); }) {
      memory_.resize(std::max(memory_.size(), L::kept_for(at_)));  // grows until it was the longest batch
      at_.kept = memory_;
    }
  }

  std::size_t rows_;
  RaggedRows const* ragged_;
  Where at_;
  std::vector<float> memory_;  // what kept_for asks for
  [[no_unique_address]] typename detail::StateOf<L>::type state_;
};

/// The layout of rows of plain numbers O.
template <class D, class O> auto plain_layout(int rows) {
  if constexpr (O::rank == 3) return Kernels<D>::image(rows, O::dims[0], O::dims[1], O::dims[2]);
  else return Kernels<D>::matrix(rows, static_cast<int>(O::size));
}

/// The layout of input i of a stage, whose rows are O.
template <class D, class O> auto layout_in(StageSite const& site, std::size_t i, int rows) {
  using layout = typename Kernels<D>::layout;
  return site.in[i] == nullptr ? plain_layout<D, O>(rows) : *static_cast<layout const*>(site.in[i]);
}

/// A layer of kernels. Its kernel chooses the layout of y; where y must be plain, it is converted.
template <class D, class L, class In, class Out> class KernelStage {
  using K     = Kernels<D>;
  using It    = Described<L, In>;
  using Inner = typename L::template stage<D, typename It::shape>;
  using From  = typename OfShape<typename It::shape>::type;  // a row of the kernel, and what it gives
  using To    = typename OfShape<typename L::template apply<typename It::shape>::type>::type;

 public:
  static constexpr bool whole_rows = It::repeats == 1;  // false: a row of the kernel is a vector
  static constexpr bool overwrites = Inner::overwrites, keeps_x = !Inner::overwrites, keeps_y = Inner::keeps_y;
  static constexpr bool renames = requires { requires Inner::renames; };
  static constexpr bool apart   = requires { requires Inner::apart; };
  static constexpr bool has_add = requires(Inner& inner) { inner.add_gradients(); };

  explicit KernelStage(StageSite const& site)
      : rows_{site.rows * static_cast<int>(It::repeats)},
        inner_{Site<D>{runtime(site), layout_in<D, From>(site, 0, rows_), rows_, site.number, site.wants_dx}},
        out_{inner_.out()} {
    auto const plain = plain_layout<D, To>(rows_);
    is_plain_        = out_ == plain;
    if (is_plain_ || (!site.plain && whole_rows)) return;
    bytes_ = (K::bytes(out_) + 63) / 64 * 64;
    to_plain_.emplace(runtime(site), out_, plain, rows_, static_cast<int>(To::size));
    is_plain_ = true;
  }

  void const* layout() const { return is_plain_ ? nullptr : &out_; }
  std::size_t workspace() const { return inner_.workspace() + (to_plain_ ? 2 * bytes_ + 64 : 0); }
  Finds finds() const {
    if constexpr (requires {
                    { inner_.reads_workspace() } -> std::same_as<bool>;
                  })
      return to_plain_ || inner_.reads_workspace() ? Finds::always : Finds::nothing;
    else return Finds::always;
  }

  void bind(Ports const& p) {
    auto at = chorale::Ports{.x         = number(p.in[0].data),
                             .y         = number(p.out[0].data),
                             .dx        = p.in[0].gradient,
                             .dy        = p.out[0].gradient,
                             .workspace = p.workspace};
    if (to_plain_) {
      auto* const y = reinterpret_cast<float*>(p.workspace + (inner_.workspace() + 63) / 64 * 64);
      auto* const d = y + bytes_ / sizeof(float);
      to_plain_->bind({.x = y, .y = at.y, .dx = at.dy == nullptr ? nullptr : d, .dy = at.dy});
      at.y = y, at.dy = at.dy == nullptr ? nullptr : d;
    }
    auto const& v = p.variables;
    if (v.size() > 0) at.kernel = number(v[0].data), at.d_kernel = v[0].gradient;
    if (v.size() > 1) at.bias = number(v[1].data), at.d_bias = v[1].gradient;
    if (v.size() > 3) {  // moving statistics of a normalization
      at.mean = number(v[2].data), at.d_mean = v[2].gradient;
      at.variance = number(v[3].data), at.d_variance = v[3].gradient;
    }
    inner_.bind(at);
  }
  void read_from(std::size_t, void const* x) { inner_.read_from(static_cast<float const*>(x)); }
  /// Moves the gradient of a variable: 0, the kernel; 1, the bias.
  void move(std::size_t variable, float* gradient) requires has_add { inner_.move(variable, gradient); }
  bool can_add() const requires has_add { return inner_.can_add(); }
  void add(Pass const&) requires has_add { inner_.add_gradients(); }
  void forward(Pass const& pass) {
    inner_.forward(pass);
    if (to_plain_) to_plain_->forward(pass);
  }
  void backward(Pass const& pass) {
    if (to_plain_) to_plain_->backward(pass);
    inner_.backward(pass);
  }

 private:
  static auto& runtime(StageSite const& site) { return *static_cast<typename K::runtime*>(site.runtime); }
  static float* number(void* data) { return static_cast<float*>(data); }

  int rows_;  // of the kernel: vectors of the batch
  Inner inner_;
  typename K::layout out_;     // of the kernel's y
  bool is_plain_     = false;  // y is rows of plain numbers
  std::size_t bytes_ = 0;      // of the kernel's y, where it is converted
  std::optional<typename K::ToPlain> to_plain_;
};

/// y = a + b, in the layout of a.
template <class D, class O> class AddStage {
  using K = Kernels<D>;

 public:
  explicit AddStage(StageSite const& site)
      : a_{layout_in<D, O>(site, 0, site.rows)}, is_plain_{site.in[0] == nullptr},
        inner_{*static_cast<typename K::runtime*>(site.runtime), a_, layout_in<D, O>(site, 1, site.rows)} {}

  void const* layout() const { return is_plain_ ? nullptr : &a_; }
  bool passes_all() const { return inner_.one_gradient(); }
  std::size_t workspace() const { return inner_.workspace(); }
  Finds finds() const { return Finds::nothing; }  // a copy of b for the sum

  void bind(Ports const& p) {
    inner_.bind({.x         = number(p.in[0].data),
                 .y         = number(p.out[0].data),
                 .dx        = p.in[0].gradient,
                 .dy        = p.out[0].gradient,
                 .other     = number(p.in[1].data),
                 .d_other   = p.in[1].gradient,
                 .workspace = p.workspace});
  }
  void read_from(std::size_t in, void const* x) { inner_.read_from(in, static_cast<float const*>(x)); }
  void forward(Pass const& pass) { inner_.forward(pass); }
  void backward(Pass const& pass) { inner_.backward(pass); }

 private:
  static float* number(void* data) { return static_cast<float*>(data); }

  typename K::layout a_;
  bool is_plain_;
  typename K::Sum inner_;
};

/// True if a layer of two functions computes on device D.
template <class D, class S, class L> constexpr bool computes_on() {
  if constexpr (D::memory == Memory::host) return true;
  else return requires(typename S::Where& at) { L::template queue_forward<D>(at); };
}

// Layers of two functions over a Place.
template <class D, class L, class... In, class... Out> struct Stage<D, L, List<In...>, List<Out...>> {
  static constexpr Ops ops() {
    using S               = PlaceStage<D, L, List<In...>, List<Out...>>;
    auto made             = Ops{};
    constexpr bool fits   = computes_on<D, S, L>();
    constexpr bool ragged = (In::is_ragged || ...);  // which the learner refuses
    static_assert(fits || ragged,
                  "chorale: this layer computes on the host, and the network is for another device. Give "
                  "the layer queue_forward<D> and queue_backward<D>, as nn::LayerNorm has them, or use a "
                  "strategy over Cpu");
    if constexpr (fits) made = functions_of<S>();
    if constexpr (fits && QueuesWork<D>)
      made.look = [](void* at, std::size_t in, void const* x) { static_cast<S*>(at)->look(in, x); };
    made.overwrites = overwrites_x<L>();
    made.keeps_x    = reads_x<L>();
    made.keeps_y    = reads_y<L>();
    made.passes     = passes_gradient<L>();
    made.adds       = true;
    if constexpr (requires { typename L::axis; }) made.axis = L::axis::name, made.axis_size = L::axis::size;
    if constexpr (requires { requires L::whole_share; }) made.whole_share = true;
    if constexpr (requires { requires L::other_rows; }) made.other_rows = true;
    return made;
  }
};

/// Refuses a layer of kernels that has none on device D. Returns false then. The learner refuses ragged values.
template <class D, class L, class In> constexpr bool check_device() {
  if constexpr (In::is_ragged && D::memory != Memory::host) return false;
  else if constexpr (requires { L::template check_device<D>(); }) return L::template check_device<D>();
  else return true;
}

// Layers of kernels.
template <class D, KernelLayer L, class In, class Out> struct Stage<D, L, List<In>, List<Out>> {
  static constexpr Ops ops() {
    if constexpr (!check_device<D, L, In>()) {
      return {};
    } else if constexpr (In::is_ragged) {
      auto made = of<BlocksStage<D, L, In, Out>>();
      made.adds = true;
      return made;
    } else {
      using S            = KernelStage<D, L, In, Out>;
      auto made          = of<S>();
      made.layout        = [](void const* at) { return static_cast<S const*>(at)->layout(); };
      made.renames       = S::renames;
      made.takes_layouts = S::whole_rows;
      made.apart         = S::apart;
      if constexpr (Described<L, In>::joins)
        made.joined = L::template apply<typename Described<L, In>::shape>::channels;
      return made;
    }
  }

 private:
  template <class S> static constexpr Ops of() {
    auto made       = functions_of<S>();
    made.overwrites = S::overwrites;
    made.keeps_x    = S::keeps_x;
    made.keeps_y    = S::keeps_y;
    return made;
  }
};

// A sum, in any layout.
template <class D, class O> requires(!O::is_ragged) struct Stage<D, Add, List<O, O>, List<O>> {
  static constexpr Ops ops() {
    using S            = AddStage<D, O>;
    auto made          = functions_of<S>();
    made.layout        = [](void const* at) { return static_cast<S const*>(at)->layout(); };
    made.passes_all    = [](void const* at) { return static_cast<S const*>(at)->passes_all(); };
    made.overwrites    = true;
    made.keeps_x       = false;
    made.passes        = true;
    made.takes_layouts = true;
    made.keeps_layout  = true;
    return made;
  }
};

// A trace for the plan calls no function.
template <class L, class... In, class... Out> struct Stage<NoDevice, L, List<In...>, List<Out...>> {
  static constexpr Ops ops() {
    auto made = Ops{};
    if constexpr (requires { typename L::axis; }) made.axis = L::axis::name, made.axis_size = L::axis::size;
    if constexpr (requires { requires L::whole_share; }) made.whole_share = true;
    if constexpr (requires { requires L::other_rows; }) made.other_rows = true;
    return made;
  }
};
// Nor for layers of kernels.
template <KernelLayer L, class In, class Out> struct Stage<NoDevice, L, List<In>, List<Out>> {
  static constexpr Ops ops() { return {}; }
};
// Nor for sums.
template <class O> struct Stage<NoDevice, Add, List<O, O>, List<O>> {
  static constexpr Ops ops() { return {}; }
};

}  // namespace chorale::nn::graph
