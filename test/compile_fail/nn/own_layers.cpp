// SPDX-License-Identifier: Apache-2.0
//
// Layers of a Sequential that lack a member.
#include <chorale/chorale.hpp>

#include <array>
#include <string_view>

using namespace chorale;

template <class In> struct SameShape {
  using type = In;
  static constexpr std::array<VariableSpec, 0> variables{};
};
template <class In> struct NoShape {
  static constexpr std::array<VariableSpec, 0> variables{};
};
struct Named {
  static constexpr std::string_view name = "halved";
};
struct Checked : Named {
  template <class In> static constexpr void check() {}
  template <class D, class In> struct stage;
};
template <class Layer> struct Net : nn::Sequential<nn::Input<8>, Layer> {};
template <class Layer> constexpr auto parameters = Net<Layer>::plan.parameters;

// expect: compiles
struct Halved : Checked {
  template <class In> using apply = SameShape<In>;
};
constexpr auto n = parameters<Halved>;

// expect: chorale: a layer of this nn::Sequential has no check. Write template <class In> static constexpr void check()
struct Halved : Named {
  template <class In> using apply = SameShape<In>;
};
constexpr auto n = parameters<Halved>;

// expect: chorale: a layer of this nn::Sequential has no apply. Write template <class In> struct apply
struct Halved : Checked {};
constexpr auto n = parameters<Halved>;

// expect: chorale: a layer of this nn::Sequential has an apply<In> without type, the shape that comes out
struct Halved : Checked {
  template <class In> using apply = NoShape<In>;
};
constexpr auto n = parameters<Halved>;
