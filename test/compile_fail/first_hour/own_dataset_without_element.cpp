// own_dataset_without_element.cpp   expect: chorale: the data argument is not a Dataset: it has no element
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<10>> {};

struct Zeros {
  struct Stream {
    std::size_t left = 4;
    bool next(Batch& to) {
      static auto const x = std::vector<float>(784);
      static auto const y = std::vector<int>(1);
      to                  = {.x = x, .y = y, .rows = 1};
      return left-- > 0;
    }
  };
  Stream stream(std::size_t) const { return {}; }
  std::optional<std::size_t> size() const { return 4; }
};

int main() {
  auto train   = Zeros{};
  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto trainer = Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}};
  trainer.fit(train, {.epochs = 2});
  auto const scores  = trainer.evaluate(train);
  auto const outputs = trainer.predict(train);
  return outputs.rows() == scores.rows() ? 0 : 1;
}
