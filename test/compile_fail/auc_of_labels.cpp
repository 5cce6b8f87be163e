// auc_of_labels.cpp   expect: chorale: a metric with a state needs a name, void update(state&, Span<float const> y, Span<target const> wanted) const, with the targets of the loss
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Click : Field<int, 1> {};
struct Person : Field<float, 8> {};

struct Clicks : nn::Graph<Person> {
  nn::Dense<2> click;
  constexpr auto operator()(auto person) const { return nn::outputs<Click>(click(person)); }
};
auto const model = nn::compile<Clicks>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::AUC<>{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }
