// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <vector>

using namespace chorale;

struct Word : Field<int, 1> {};
struct Other : Field<float, 1> {};
struct Line : Field<int, 4> {};
struct Text : Field<int, ragged> {};

std::vector<int> const numbers(8);
std::vector<std::vector<int>> const texts(8);
auto const words   = data::from_fields<Word>(numbers);
auto const text    = data::from_fields<Text>(texts);
auto const samples = data::from_tensors(std::vector<float>(8), std::vector<int>(8), 1);

auto const first = [](auto const& row, auto& to) { to[Line{}].assign(4, row[Word{}][0]); };

// expect: compiles
auto const made = words.batch(4);

// expect: compiles
auto const made = words.cache().batch(4);

// expect: chorale: cache keeps rows, not batches. Put it before .batch(n).
auto const made = words.batch(4).cache();

// expect: chorale: cache keeps rows, not batches. Put it before .batch(n).
auto const made = words.batch(4).cache(data::InFile{"words.cache"});

// expect: compiles
auto const made = words.concatenate(data::from_fields<Word>(numbers));

// expect: chorale: concatenate needs two datasets of the same elements. Put a map before it.
auto const made = words.concatenate(text);

// expect: compiles
auto const made = data::zip(words, text);

// expect: chorale: zip takes rows, not batches. Put it before .batch(n).
auto const made = data::zip(words.batch(2), text);

// expect: chorale: zip takes two datasets of Samples, or two of rows of named fields. Put a map before it.
auto const made = data::zip(words, samples);

// expect: compiles
auto const made = words.filter([](auto const& row) { return row[Word{}][0] > 0; });

// expect: chorale: filter's function cannot be called as f(element), or does not say true or false.
auto const made = words.filter([](int word) { return word > 0; });

// expect: compiles
auto const made = words.map<Line>(first).batch(4);

// expect: chorale: map takes rows, not batches. Put it before .batch(n).
auto const made = words.batch(4).map<Line>(first);

// expect: compiles
auto const made = words.window<Line>({.size = 4});

// expect: chorale: window takes rows, not batches. Put it before .batch(n).
auto const made = words.batch(4).window<Line>({.size = 4});

// expect: chorale: window<...> names as many fields as the rows have, with the same element types.
auto const made = words.window<Other>({.size = 4});

// expect: chorale: a window has another shape than its rows. Name fields for it: .window<Line>(how)
auto const made = words.window({.size = 4});

// expect: compiles
struct Now : Field<int, 64> {};
struct Next : Field<int, 64> {};
auto make(std::vector<int> const& tokens) { return data::windows<Now, Next>(tokens); }

// expect: chorale: data::windows<Now, Next> takes two fields of as many ids
struct Now : Field<int, 64> {};
struct Next : Field<int, 32> {};
auto make(std::vector<int> const& tokens) { return data::windows<Now, Next>(tokens); }

// expect: chorale: batch takes rows, not batches. Write .batch(n) once.
auto const made = words.batch(4).batch(4);

// expect: compiles
auto const made = samples.padded_batch(4);

// expect: chorale: padded_batch takes rows, not batches. Write .padded_batch(n) once.
auto const made = samples.padded_batch(4).padded_batch(4);

// expect: chorale: padded_batch takes rows, not batches. Write .padded_batch(n) once.
auto const made = text.batch(4).padded_batch(4, data::PaddingOf<Text>{.length = 9});

// expect: compiles
auto const made = text.padded_batch(4, data::PaddingOf<Text>{.length = 9});

// expect: chorale: padded_batch pads a field that the rows do not have. Name it in map<...>
auto const made = text.padded_batch(4, data::PaddingOf<Other>{.length = 9});

// expect: chorale: padded_batch pads ragged fields, and all rows of this one have the same shape
auto const made = words.padded_batch(4, data::PaddingOf<Word>{.length = 9});
