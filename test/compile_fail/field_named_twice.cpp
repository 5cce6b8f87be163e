// field_named_twice.cpp   expect: chorale: a field is named twice in map<...>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Title : Field<int, 1> {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Title>([](auto const&, auto& to) { to[Title{}] = {1}; }).batch(10);
}
