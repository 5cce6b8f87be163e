// learner_asked_to_predict.cpp   expect: chorale: this model does not predict
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Points       = BasicBatch<float, float>;
auto const loss_of = [](auto& step, Points const& batch) {
  step.gradient(0)[0] += 1;
  return static_cast<float>(batch.rows);
};
auto const model = custom_model<Points>({{"offset"}}, loss_of, optim::SGD{});
template <class Data> auto outputs(Data const& data) {
  auto trainer = Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}};
  return trainer.predict(data);
}
auto use() { return outputs(data::from_tensors(std::vector<float>(4), std::vector<float>(4), 1).batch(2)); }
