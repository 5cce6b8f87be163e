// ids_as_bytes_into_embedding.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <cstdint>

using namespace chorale;

struct In : Field<std::uint8_t, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Embedding<9, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
