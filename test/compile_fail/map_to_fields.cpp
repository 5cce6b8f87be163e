// map_to_fields.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Title : Field<int, 1> {};
struct Priority : Field<float, 1> {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Priority>([](auto const&, auto& to) { to[Title{}] = {1}, to[Priority{}] = {0}; }).batch(10);
}
