// auc_of_numbers.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Click : Field<float, 1> {};
struct Person : Field<float, 8> {};

struct Clicks : nn::Graph<Person> {
  nn::Dense<1> click;
  constexpr auto operator()(auto person) const { return nn::outputs<Click>(click(person)); }
};
auto const model = nn::compile<Clicks>(loss::BinaryCrossEntropy{}, optim::SGD{}, metric::AUC<>{}, metric::Precision{});
auto trained() { return Trainer{model, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }
