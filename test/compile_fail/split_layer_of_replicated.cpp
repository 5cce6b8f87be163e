// split_layer_of_replicated.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

#include <array>
#include <optional>
#include <string_view>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

/// y = x times this rank's columns of a matrix.
struct Columns : nn::Layer<Columns> {
  using axis                             = Tensor;
  static constexpr std::string_view name = "columns";
  static constexpr std::optional<nn::Distribution> spread(nn::Distribution x) {
    return x == nn::replicated ? std::optional{nn::sharded<-1>} : std::nullopt;
  }
  template <int T, int C> static constexpr auto output(nn::Of<float, T, C>) { return nn::Of<float, T, 3>{}; }
  static constexpr auto variables(auto x) { return std::array{nn::glorot_uniform("kernel", x.back, 3)}; }
  static void forward(auto&) {}
  static void backward(auto&) {}
};

struct Net : nn::Graph<Image> {
  Columns columns;

  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(columns(nn::replicate<Tensor>(x))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
