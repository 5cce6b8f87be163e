// field_named_once.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Title : Field<int, 1> {};
struct Body : Field<int, 1> {};

auto use(data::Digits const& rows) {
  return rows.map<Title, Body>([](auto const&, auto& to) { to[Title{}] = to[Body{}] = {1}; }).batch(10);
}
