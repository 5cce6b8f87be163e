// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/engine/boundary_layers.hpp>
#include <chorale/nn/sequential.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::nn {

/// A network laid out on one device for one number of rows: stages that are known at compile time, and their buffers.
///
///   forward     x ─▶ stage 0 ─▶ y0 ─▶ stage 1 ─▶ ... ─▶ output()
///   backward    d_output() ─▶ ... ─▶ stage 0;  after each stage that has variables, `ready(end)`: the gradients
///               below `end` are final, and a bucket of them may be sent while the stages before still compute
///   branches    a sum reads the outputs of both branches; if their layouts are equal, both get one gradient buffer
///
/// keeps   one buffer per activation (none for a stage that may overwrite its input) and two for their gradients, and
///         one more for each depth of branches
/// cost    forward and backward allocate nothing
/// order   forward and backward only enqueue work if the device QueuesWork: settle() before the host reads results
template <class D, class Net>
class Executor {
  using K     = Kernels<D>;

  static constexpr bool halves      = detail::keeps_halves<D, Net>;
  static constexpr std::size_t lead = halves ? 1 : 0;                      // stages before the network's own
  using nodes                       = typename detail::WithBoundaryLayers<halves, Net>::type;

  template <class Nodes>
  struct StagesOf;
  template <class... N>
  struct StagesOf<detail::List<N...>> {
    using type = std::tuple<std::optional<typename N::layer::template stage<D, typename N::in>>...>;
    static constexpr std::array<std::size_t, sizeof...(N)> variables{N::variables...};
    static constexpr std::array<detail::Branch, sizeof...(N)> branches{detail::branch_of<typename N::layer>()...};
  };
  using Stages = typename StagesOf<nodes>::type;

  struct NoStep {
    explicit NoStep(std::size_t) {}
  };
  template <class Of>
  struct StepOf {
    using type = NoStep;
  };
  template <QueuesWork Of>
  struct StepOf<Of> {
    using type = typename Kernels<Of>::Step;
  };

  static constexpr auto variables_of    = StagesOf<nodes>::variables;
  static constexpr auto branches        = StagesOf<nodes>::branches;
  static constexpr auto wires           = detail::wires_of(branches);
  static constexpr auto trains          = detail::trains_before(wires, variables_of);
  static constexpr std::size_t depth    = detail::depth_of(branches);       // residuals within residuals, at most
  static constexpr std::size_t count    = nodes::size;
  static constexpr auto const& plan     = Net::plan;
  static constexpr std::size_t width_in = Net::input::size, width_out = Net::output::size;

  template <std::size_t I>
  using Stage = typename std::tuple_element_t<I, Stages>::value_type;

  /// True if y of stage I is its x. Not so for the user's batch, whose address changes from step to step.
  template <std::size_t I>
  static constexpr bool renames() {
    constexpr bool same_bytes = requires { requires Stage<I>::renames; };
    return I > 0 && (same_bytes || branches[I] == detail::Branch::fork || branches[I] == detail::Branch::turn);
  }
  /// True if y of stage I is read again after the next stage has read it.
  template <std::size_t I>
  static constexpr bool keeps_y() {
    if constexpr (renames<I>() && !Stage<I>::keeps_y) return keeps_y<wires.x[I]>();
    else return Stage<I>::keeps_y;
  }
  /// True if stage I may overwrite its input: not the user's batch, nor what the stage before reads again.
  template <std::size_t I>
  static constexpr bool in_place() {
    if constexpr (I == 0) return false;
    else return renames<I>() || (Stage<I>::overwrites && !keeps_y<wires.x[I]>());
  }

 public:
  /// rows    of every batch that this executor takes, at least 1
  Executor(D const& device, int rows, Variables const& variables, Gradients const& gradients)
      : rows_{rows}, step_{static_cast<std::size_t>(rows)} {
    if constexpr (requires { { Net::products } -> std::convertible_to<Products>; }) runtime_.rounds_to = Net::products;
    if constexpr (halves) runtime_.activations = Net::activations;
    each([&]<std::size_t I>() {
      auto site = Site<D>{runtime_, layout_into<I>(), rows, static_cast<int>(I - lead), trains_before<I>()};
      if constexpr (branches[I] == detail::Branch::sum) site.other = std::get<wires.other[I]>(stages_)->out();
      std::get<I>(stages_).emplace(site);
    });

    auto total    = std::size_t{0};
    auto widest   = round_up(static_cast<std::size_t>(rows) * width_in * sizeof(float));
    auto y_at     = std::array<std::size_t, count>{};
    auto work_at  = std::array<std::size_t, count>{};
    each([&]<std::size_t I>() {
      auto const& stage = *std::get<I>(stages_);
      auto const size   = round_up(K::bytes(stage.out()));
      y_at[I]           = total;
      if constexpr (in_place<I>()) y_at[I] = y_at[wires.x[I]];
      else total += size;
      work_at[I] = total;
      total += round_up(stage.workspace());
      widest = std::max(widest, size);
    });
    memory_           = device.allocate(total + (2 + depth) * widest);
    auto* const base  = memory_.data();
    auto const floats = [&](std::size_t offset) { return reinterpret_cast<float*>(base + offset); };

    output_    = floats(y_at[count - 1]);
    d_output_  = floats(total);
    auto* dy   = d_output_;
    auto held  = std::vector<float*>{};                                    // gradients that branches still read
    auto spare = [&] {                                                     // a buffer of gradients that no stage reads
      auto const is_held = [&](float* d) { return d == dy || std::ranges::find(held, d) != held.end(); };
      auto at = total;
      while (is_held(floats(at))) at += widest;
      return floats(at);
    };
    backwards([&]<std::size_t I>() {
      constexpr auto branch = branches[I];
      auto ports = Ports{.y = floats(y_at[I]), .dy = dy, .workspace = base + work_at[I]};
      if constexpr (I > 0) ports.x = floats(y_at[wires.x[I]]);
      if constexpr (branch == detail::Branch::sum) {
        ports.other   = floats(y_at[wires.other[I]]);
        ports.d_other = std::get<I>(stages_)->one_gradient() ? dy : spare();
        held.push_back(ports.d_other);
      }
      if constexpr (branch == detail::Branch::turn) std::swap(dy, held.back());
      if constexpr (branch == detail::Branch::fork) {
        ports.d_other = held.back();
        held.pop_back();
      }
      if constexpr (trains_before<I>() || branch == detail::Branch::turn) {
        constexpr bool same = renames<I>() || branch != detail::Branch::none;      // it leaves dy as it is
        auto const free = same || (in_place<I>() && std::ranges::find(held, dy) == held.end());
        ports.dx        = free ? dy : spare();
      }
      if constexpr (variables_of[I] > 0) {
        auto const first = first_variable<I>();
        ports.kernel     = variables.values.data() + plan.variables[first].offset;
        ports.d_kernel   = gradients.values.data() + plan.variables[first].offset;
        if constexpr (variables_of[I] > 1) {
          ports.bias   = variables.values.data() + plan.variables[first + 1].offset;
          ports.d_bias = gradients.values.data() + plan.variables[first + 1].offset;
        }
        if constexpr (variables_of[I] > 3) {
          ports.mean       = variables.values.data() + plan.variables[first + 2].offset;
          ports.d_mean     = gradients.values.data() + plan.variables[first + 2].offset;
          ports.variance   = variables.values.data() + plan.variables[first + 3].offset;
          ports.d_variance = gradients.values.data() + plan.variables[first + 3].offset;
        }
      }
      std::get<I>(stages_)->bind(ports);
      dy = ports.dx;
    });
  }

  Executor(Executor const&)            = delete;                           // the stages hold addresses of the runtime
  Executor& operator=(Executor const&) = delete;

  int rows() const { return rows_; }

  /// Sets the input of the next pass. If the device QueuesWork, copies it there, always to the same address.
  ///
  /// x    (rows, Input); read again by backward, so it must live until then
  void read(float const* x) {
    if constexpr (QueuesWork<D>) x = runtime_.fetch(x, static_cast<std::size_t>(rows_) * width_in);
    std::get<0>(stages_)->read_from(x);
  }
  void forward(Pass const& pass) {
    each([&]<std::size_t I>() { std::get<I>(stages_)->forward(pass); });
  }

  /// Waits until all enqueued work is done, so that the host may read its results.
  void settle() {
    if constexpr (QueuesWork<D>) runtime_.synchronize();
  }
  auto& step() requires QueuesWork<D> { return step_; }

  /// Outputs of the network: (rows, Output).
  float const* output() const { return output_; }
  /// Gradient of the loss by the outputs: (rows, Output). To be written before backward.
  float* d_output() const { return d_output_; }

  /// Takes part in the sums over all replicas of one step, with zeros: called by a replica without rows.
  ///
  /// zeros    memory, kept for the next call
  static void take_part(Together const& together, std::vector<double>& zeros) {
    each([&]<std::size_t I>() {                                            // forward: two sums and the count
      if constexpr (joins<I>()) together(zeros_of(zeros, 2 * channels_of<I>() + 1));
    });
    backwards([&]<std::size_t I>() {
      if constexpr (joins<I>() && trains_before<I>()) together(zeros_of(zeros, 2 * channels_of<I>()));
    });
  }

  template <class Ready>
  void backward(Pass const& pass, Ready&& ready) {
    backwards([&]<std::size_t I>() {
      if constexpr (variables_of[I] > 0 || trains_before<I>()) std::get<I>(stages_)->backward(pass);
      if constexpr (variables_of[I] > 0) ready(plan.ready[I - lead]);
    });
  }

 private:
  static constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  /// True if the output of any stage with variables reaches I. Otherwise no stage needs the gradient by its input.
  template <std::size_t I>
  static constexpr bool trains_before() { return trains[I]; }

  template <std::size_t I>
  static constexpr bool joins() { return detail::joining_layer<typename detail::At<I, nodes>::type::layer>; }
  template <std::size_t I>
  static constexpr std::size_t channels_of() {
    return static_cast<std::size_t>(detail::At<I, nodes>::type::in::dims.back());
  }
  static Span<double> zeros_of(std::vector<double>& zeros, std::size_t n) {
    zeros.assign(n, 0.0);
    return zeros;
  }

  template <std::size_t I>
  static constexpr std::size_t first_variable() {
    std::size_t first = 0;
    for (std::size_t i = 0; i < I; ++i) first += variables_of[i];
    return first;
  }

  template <std::size_t I>
  typename K::layout layout_into() const {
    if constexpr (I > 0) return std::get<wires.x[I]>(stages_)->out();
    else if constexpr (Net::input::rank == 3)
      return K::image(rows_, Net::input::dims[0], Net::input::dims[1], Net::input::dims[2]);
    else return K::matrix(rows_, static_cast<int>(width_in));
  }

  template <class F>
  static void each(F&& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) { (f.template operator()<I>(), ...); }(
        std::make_index_sequence<count>{});
  }
  template <class F>
  static void backwards(F&& f) {
    [&]<std::size_t... I>(std::index_sequence<I...>) { (f.template operator()<count - 1 - I>(), ...); }(
        std::make_index_sequence<count>{});
  }

  int rows_;
  typename K::runtime runtime_;
  [[no_unique_address]] typename StepOf<D>::type step_;
  Stages stages_;
  typename D::block memory_;
  float* output_   = nullptr;
  float* d_output_ = nullptr;
};

}  // namespace chorale::nn
