// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <vector>

using namespace chorale;

struct Word : Field<int, 1> {};
struct Line : Field<int, 4> {};
struct Text : Field<int, ragged> {};
struct Pages : Field<int, 2, ragged> {};

std::vector<int> const numbers(8);
std::vector<std::vector<int>> const texts(8);
auto const lines   = data::from_fields<Line>(numbers);
auto const words   = data::from_fields<Word>(numbers);
auto const samples = data::from_tensors(std::vector<float>(8), std::vector<int>(8), 1);

// expect: compiles
struct Title : Field<int, 40> {};
auto const title = Title{};

// expect: chorale: each dimension of a Field is at least 1, or ragged
struct Title : Field<int, 0> {};
auto const title = Title{};

// expect: chorale: a Field has elements of float, int or std::uint8_t
struct Title : Field<double, 40> {};
auto const title = Title{};

// expect: compiles
auto const rows = data::from_fields<Text>(texts);

// expect: chorale: from_fields takes a vector of vectors for a ragged field, or a vector of std::string for a field of bytes
auto const rows = data::from_fields<Text>(numbers);

// expect: compiles
auto const rows = lines.map<Word>([](auto const& row, auto& to) { to[Word{}].assign(1, row[Line{}][0]); });

// expect: chorale: this asks for a field that the rows do not have. Name it in map<...>
auto const rows = lines.map<Word>([](auto const& row, auto& to) { to[Word{}].assign(1, row[Text{}][0]); });

// expect: chorale: this fills a field that map<...> does not name. Name it there
auto const rows = lines.map<Word>([](auto const& row, auto& to) { to[Text{}].assign(1, row[Line{}][0]); });

// expect: chorale: map's function cannot be called as f(row, to) or f(row, to, place)
auto const rows = lines.map<Word>([](auto const& row) { return row[Line{}][0]; });

// expect: compiles
auto lengths(Rows<Line, Text> const& rows) { return rows.lengths(Text{}); }

// expect: chorale: lengths are those of a ragged field, and all rows of this one have the same shape
auto lengths(Rows<Line, Text> const& rows) { return rows.lengths(Line{}); }

// expect: compiles
auto unpadded(Rows<Text> const& rows) { return rows.unpadded(Text{}, 0); }

// expect: chorale: a row without padding lies in one piece only if its ragged dimension is the first one
auto unpadded(Rows<Pages> const& rows) { return rows.unpadded(Pages{}, 0); }

// expect: compiles
auto const mapped = samples.map([](auto const& row, auto& x, auto& y) {
  x.assign(row.x.begin(), row.x.end());
  y.assign(row.y.begin(), row.y.end());
});

// expect: chorale: map's function cannot be called as f(row, x, y) or f(row, x, y, place)
auto const mapped = samples.map([](auto const& row, auto& x) { x.assign(row.x.begin(), row.x.end()); });
