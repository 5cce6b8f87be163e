// learner_that_predicts.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Points = BasicBatch<float, float>;
struct Nothing {
  static constexpr std::size_t output_width = 1;
  float learn(auto&, Points const&) { return 0; }
  Span<float const> predict(Variables const&, Points const& batch) { return batch.x; }
};
auto const model = custom_model<Points>({{"offset"}}, Nothing{}, optim::SGD{});
template <class Data> auto outputs(Data const& data) {
  auto trainer = Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  return trainer.predict(data);
}
auto use() { return outputs(data::from_tensors(std::vector<float>(4), std::vector<float>(4), 1).batch(2)); }
