// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

// expect: compiles
struct Frames : Field<float, ragged, 3> {};
struct Topic : Field<float, 2> {};

struct Net : nn::Graph<Frames> {
  nn::LSTM<4> reader;
  nn::Dense<2> topic;
  constexpr auto operator()(auto frames) const { return nn::outputs<Topic>(topic(reader(frames))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: a network takes fields whose first dimension alone may be ragged
struct Frames : Field<float, 3, ragged> {};
struct Topic : Field<float, 2> {};

struct Net : nn::Graph<Frames> {
  nn::LSTM<4> reader;
  nn::Dense<2> topic;
  constexpr auto operator()(auto frames) const { return nn::outputs<Topic>(topic(reader(frames))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Title : Field<int, ragged> {};
struct Body : Field<int, ragged> {};
struct Topic : Field<float, 4> {};

struct Net : nn::Graph<Title, Body> {
  nn::Embedding<50, 4> words;
  constexpr auto operator()(auto title, auto body) const {
    return nn::outputs<Topic>(nn::GlobalAveragePool1D{}(words(title) + nn::tanh(words(title))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer combines values whose rows have the lengths of different fields, or of none.
struct Title : Field<int, ragged> {};
struct Body : Field<int, ragged> {};
struct Topic : Field<float, 4> {};

struct Net : nn::Graph<Title, Body> {
  nn::Embedding<50, 4> words;
  constexpr auto operator()(auto title, auto body) const {
    return nn::outputs<Topic>(nn::GlobalAveragePool1D{}(words(title) + words(body)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer does not take a ragged dimension
struct Words : Field<int, ragged> {};
struct Topic : Field<float, 2> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<2> topic;
  constexpr auto operator()(auto ids) const { return nn::outputs<Topic>(topic(nn::permute<1, 0>(words(ids)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<int, ragged> {};
struct Topic : Field<float, 2> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<2> topic;
  constexpr auto operator()(auto ids) const { return nn::outputs<Topic>(topic(nn::GlobalMaxPool1D{}(words(ids)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: of an output and the field that it is compared with, one has rows of different lengths and the other has not.
struct Words : Field<int, ragged> {};
struct Tags : Field<int, 4> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<3> head;
  constexpr auto operator()(auto ids) const { return nn::outputs<Tags>(head(words(ids))); }
};
auto model                = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Words : Field<int, ragged> {};
struct Tags : Field<int, ragged> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<3> head;
  constexpr auto operator()(auto ids) const { return nn::outputs<Tags>(head(words(ids))); }
};
auto model                = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: unpad<To>(From{}) makes a ragged field of a padded one that the rows have
#include <vector>

struct Padded : Field<int, 6> {};
struct Words : Field<int, 3> {};

auto rows_of(std::vector<int> const& padded) { return data::from_fields<Padded>(padded).unpad<Words>(Padded{}); }

// expect: compiles
#include <vector>

struct Padded : Field<int, 6> {};
struct Words : Field<int, ragged> {};

auto rows_of(std::vector<int> const& padded) { return data::from_fields<Padded>(padded).unpad<Words>(Padded{}); }

// expect: compiles
struct Words : Field<int, 5> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::LSTM<8> reader;
  nn::Dense<1> priority;
  constexpr auto operator()(auto ids) const { return nn::outputs<Priority>(priority(reader(words(ids)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
