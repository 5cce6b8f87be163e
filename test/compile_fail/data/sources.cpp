// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace chorale;

struct Word : Field<int, 1> {};
struct Other : Field<int, 1> {};
struct Text : Field<int, ragged> {};
struct Table : Field<int, ragged, ragged> {};

std::vector<int> const numbers(8);
std::vector<std::vector<int>> const texts(8);

/// A generator of one row, which fills what it gets.
template <class... Made> auto one(std::size_t) {
  return [left = 1](Made&...) mutable { return left-- > 0; };
}

// expect: compiles
auto const rows = data::from_fields<Word, Other>(numbers, numbers).batch(4);

// expect: chorale: from_fields<...> takes one vector for each field
auto const rows = data::from_fields<Word, Other>(numbers).batch(4);

// expect: chorale: a field is named twice
auto const rows = data::from_fields<Word, Word>(numbers, numbers).batch(4);

// expect: chorale: a row consists of Fields, and this names a type that is none
auto const rows = data::from_fields<Word, int>(numbers, numbers).batch(4);

// expect: chorale: a row has at least one field
auto const rows = data::from_fields<>().batch(4);

// expect: compiles
auto const rows = data::from_fields<Text>(texts).batch(4);

// expect: chorale: a field of a row has one ragged dimension at most
auto const rows = data::from_fields<Table>(texts).batch(4);

// expect: compiles
auto word(Rows<Word, Text> const& rows) { return rows[Word{}]; }

// expect: chorale: a row consists of Fields, and this names a type that is none
auto word(Rows<int, Word> const& rows) { return rows[Word{}]; }

// expect: chorale: a field is named twice
auto word(Rows<Other, Other> const& rows) { return rows[Other{}]; }

// expect: compiles
auto const rows = data::from_generator(one<std::vector<float>, std::vector<int>>).batch(4);

// expect: chorale: from_generator's function is called as make(epoch), and what it returns as next(x, y)
auto const rows = data::from_generator(one<std::vector<int>, std::vector<int>>).batch(4);

// expect: chorale: from_generator's function is called as make(epoch), and what it returns as next(x, y)
auto const rows = data::from_generator([] { return [](auto&, auto&) { return false; }; }).batch(4);

// expect: compiles
auto const rows = data::from_generator<Word>(one<NewRow<Word>>).batch(4);

// expect: chorale: from_generator's function is called as make(epoch), and what it returns as next(to)
auto const rows = data::from_generator<Word>(one<std::vector<int>>).batch(4);

// expect: compiles
auto read() { return data::from_generator<int, int>(one<std::vector<int>, std::vector<int>>).batch(4).stream(0); }

// expect: chorale: batches hold numbers, which are copied byte by byte.
auto read() {
  auto const texts = data::from_generator<std::string, int>(one<std::vector<std::string>, std::vector<int>>);
  return texts.batch(4).stream(0);
}

// expect: chorale: cache writes numbers byte by byte: float, int, std::uint8_t and the like.
auto read(Sample<std::string, int>& to) {
  auto const texts = data::from_generator<std::string, int>(one<std::vector<std::string>, std::vector<int>>);
  return texts.cache(data::InFile{"texts.cache"}).stream(0).next(to);
}
