// map_to_no_field.cpp   expect: chorale: map<...> names Fields, and this names a type that is none.
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Title : Field<int, 1> {};
struct Priority {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Priority>([](auto const&, auto& to) { to[Title{}] = {1}; }).batch(10);
}
