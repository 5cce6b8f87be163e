// metric_without_name.cpp   expect: chorale: this metric has no name. A metric has a static constexpr std::string_view name
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(kind(words(ids))); }
};
struct Share {
  float row(Span<float const>, Span<int const>) const { return 1; }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Share{});
