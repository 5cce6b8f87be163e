// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct A : Field<float, 6> {};
struct B : Field<float, 6> {};
struct Ids : Field<int, 6> {};
struct Other : Field<int, 6> {};
struct Out : Field<float, 1> {};

struct Plus {
  constexpr auto operator()(auto a, auto b) const { return a + b; }
};
struct Minus {
  constexpr auto operator()(auto a, auto b) const { return a - b; }
};
struct Multiply {
  constexpr auto operator()(auto a, auto b) const { return a * b; }
};

template <class First, class Second, class F> struct Net : nn::Graph<First, Second> {
  constexpr auto operator()(auto a, auto b) const { return nn::outputs<Out>(F{}(a, b)); }
};
template <class First, class Second, class F> constexpr auto parameters = nn::plan_of<Net<First, Second, F>>.parameters;

// expect: compiles
constexpr auto n = parameters<A, B, Plus>;

// expect: chorale: + adds numbers, not ids
constexpr auto n = parameters<Ids, Other, Plus>;

// expect: compiles
constexpr auto n = parameters<A, B, Minus>;

// expect: chorale: - subtracts numbers, not ids
constexpr auto n = parameters<Ids, Other, Minus>;

// expect: compiles
constexpr auto n = parameters<A, B, Multiply>;

// expect: chorale: * multiplies numbers, not ids
constexpr auto n = parameters<Ids, Other, Multiply>;
