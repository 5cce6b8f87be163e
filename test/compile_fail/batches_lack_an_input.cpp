// batches_lack_an_input.cpp   expect: chorale: the network takes a field that the batches do not have. Name it in map<...>
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
void use() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), OneDeviceStrategy{Cpu{}}};
  auto const x = std::vector<float>(10);
  trainer.fit(data::from_tensors(x, x, 1).map<Kind>([](auto const&, auto& to) { to[Kind{}].assign(1, 0); }).batch(5));
}
