// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/half.hpp>
#include <chorale/nn/networks/layer_list.hpp>
#include <chorale/nn/networks/residual.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/names.hpp>
#include <chorale/tensor/plan.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale::nn {

namespace detail {

template <class Nodes> struct PlanOf;
template <class... N> struct PlanOf<List<N...>> {
  static constexpr std::size_t count = (std::size_t{0} + ... + N::variables);

  static constexpr auto make() {
    static_assert((OptionalMembersFit<typename N::layer> && ...),
                  "chorale: an optional member of a layer is not "
                  "static, or no constant: text(), joins, gives_probabilities, monotone or picks. See the table at "
                  "nn::SequentialLayer");
    (N::layer::template check<typename N::in>(), ...);
    auto specs     = std::array<VariableSpec, count>{};
    auto names     = std::array<Name, count>{};
    auto layers    = std::array<int, count>{};
    auto seen      = std::array<Seen, sizeof...(N)>{};
    auto i         = std::size_t{0};
    auto layer     = std::size_t{0};
    auto const add = [&](std::string_view name, auto const& variables) {
      auto const before = variables.empty() ? 0 : times_before(seen, name);
      for (auto const& spec : variables) {
        specs[i]  = spec;
        names[i]  = numbered(name, before, spec.name);
        layers[i] = static_cast<int>(layer);
        ++i;
      }
      ++layer;
    };
    (add(N::layer::name, N::apply::variables), ...);
    auto made                = make_plan<count, sizeof...(N)>(specs, names, layers);
    made.activations_per_row = (std::size_t{0} + ... + written<N>());
    made.products_per_row    = (std::size_t{0} + ... + products<N>());
    return made;
  }

 private:
  struct Seen {
    std::string_view name;
    int times = 0;
  };
  /// Times that a name came before. Compilers limit the steps of a constant expression, so each name is stored once.
  static constexpr int times_before(std::array<Seen, sizeof...(N)>& seen, std::string_view name) {
    std::size_t k = 0;
    while (seen[k].times > 0 && seen[k].name != name) ++k;
    seen[k].name = name;
    return seen[k].times++;
  }

  template <class One> static constexpr std::size_t written() {
    constexpr auto branch = branch_of<typename One::layer>();
    return branch == Branch::fork || branch == Branch::turn ? 0 : One::out::size;
  }
  template <class One> static constexpr std::size_t products() {
    if constexpr (requires { One::apply::products; }) return One::apply::products;
    else return 0;
  }
};

/// Refuses a list that is not a network. A function, as clang abandons a class with a failed static_assert.
template <class First, std::size_t rest> constexpr auto refuse_list() {
  constexpr bool has_input = requires { typename First::shape; };
  static_assert(has_input, "chorale: a Sequential begins with nn::Input<...>, the shape of one row");
  static_assert(!has_input || rest > 0, "chorale: a Sequential needs at least one layer after nn::Input");
}

}  // namespace detail

/// A network whose layers follow one another; shapes are computed and checked by the compiler.
///
///   struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};     a struct, not a using:
///                                                                                     its errors are shorter
///
/// keeps   no state: `plan` is a constexpr value; variables are made by `nn::compile(...).instantiate(device, seed)`
/// source  tf.keras.Sequential
template <class First, class... Layers> struct Sequential {
  using refused = decltype(detail::refuse_list<First, sizeof...(Layers)>());  // nn::compile says nothing more
};

/// A network whose first argument is its input: each layer takes the output of the one before it.
template <int... D, class... Layers> requires(sizeof...(Layers) > 0) struct Sequential<Input<D...>, Layers...> {
  using input  = Shape<D...>;                                             // one row
  using layers = typename detail::Flat<detail::List<>, Layers...>::type;  // as written, with blocks flattened
  using called = typename detail::Ordered<Layers...>::type;               // as they are computed, from first to last
  using chain  = detail::OrderedChain<input, detail::List<Layers...>>;
  using nodes  = typename chain::nodes;
  using output = typename chain::output;

  static constexpr auto plan = detail::PlanOf<nodes>::make();
};

/// A network whose products may round their factors; it has the variables of the network itself, also in files.
///
///   nn::compile<nn::WithProducts<Net, Products::bf16>>(loss, optimizer, metrics...)                    or, in Net itself,
///   static constexpr auto products = Products::bf16;
///   nn::compile<nn::WithProducts<Net, Products::fp16>>(loss, optim::LossScaled{optimizer}, metrics...)
template <class Net, Products P> struct WithProducts : Net {
  static constexpr auto products = P;
};

/// The type in which a network computes: T is float, bf16 or fp16. With bf16 and fp16, products round their factors to
/// T, and activations and their gradients are stored in T, on devices that support it: GPUs and PJRT. Variables, their
/// gradients, sums, statistics of normalizations and the loss are always float. Of a network derived from nn::Graph it is
/// the type of products alone, float or bf16.
///
///   nn::compile<Net, nn::Precision<bf16>>(loss, optimizer, metrics...)
///   nn::compile<Net, nn::Precision<fp16>>(loss, optim::LossScaled{optimizer}, metrics...)
///
/// source  Micikevicius et al., "Mixed Precision Training", ICLR 2018; torch.autocast
template <class T> struct Precision {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, fp16>,
                "chorale: Precision<T> takes float, bf16 or fp16");
  static constexpr bool is_bf16 = std::is_same_v<T, bf16>, is_fp16 = std::is_same_v<T, fp16>;
  static constexpr auto products    = is_bf16 ? Products::bf16 : is_fp16 ? Products::fp16 : Products::f32;
  static constexpr auto activations = is_bf16 ? Elements::bf16 : is_fp16 ? Elements::fp16 : Elements::f32;
};

/// A network under a Precision; it has the variables of the network itself, also in files.
template <class Net, class P> struct WithPrecision : Net {
  static constexpr auto products    = P::products;
  static constexpr auto activations = P::activations;
};

}  // namespace chorale::nn
