// kept_of_positions.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <cstddef>
#include <string_view>

using namespace chorale;

struct Words : Field<float, ragged, 3> {};
struct Topic : Field<float, 3> {};

struct First : nn::Layer<First> {
  static constexpr std::string_view name = "first";
  static constexpr bool reads_lengths    = true;
  template <int T, int C> static constexpr auto output(nn::Of<float, T, C>) { return nn::Of<float, C>{}; }
  static constexpr std::size_t kept(auto x) { return x.vectors; }
  static std::size_t kept_for(auto const& at) { return at.x().size(); }
  static void forward(auto&) {}
  static void backward(auto&) {}
};

struct Net : nn::Graph<Words> {
  nn::Dense<3> dense;
  First first;
  constexpr auto operator()(auto words) const { return nn::outputs<Topic>(first(dense(words))); }
};
auto bytes() { return nn::GraphExecutor<Net, Cpu>{1, {}, {}}.bytes(); }
