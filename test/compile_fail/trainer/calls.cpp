// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <memory>
#include <vector>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

std::vector<float> const x(64);
std::vector<int> const y(8);
auto const train = data::from_tensors(x, y, 8).batch(4);

auto trainer() { return Trainer{model, MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{}}; }

struct NoBatches {
  bool next(Batch&) { return false; }
};
struct Empty {
  using element = Batch;
  auto stream(std::size_t) const { return NoBatches{}; }
  std::optional<std::size_t> size() const { return 0; }
};

// expect: compiles
void learn() { trainer().fit(Empty{}, {.epochs = 3}); }

// expect: chorale: the data argument is not a Dataset: its stream has no next
struct Ranges {
  using element = Batch;
  auto stream(std::size_t) const { return std::vector<Batch>{}; }
  std::optional<std::size_t> size() const { return 0; }
};
void learn() { trainer().fit(Ranges{}, {.epochs = 3}); }

// expect: chorale: the data argument is not a Dataset: it cannot be copied
struct Opened : Empty {
  std::unique_ptr<int> file;
};
void learn() { trainer().fit(Opened{}, {.epochs = 3}); }

// expect: chorale: the elements of this dataset are not the batches that the model takes, Model::batch
struct Score : Field<float, 8> {};
void learn() { trainer().fit(data::from_fields<Score>(x).batch(4), {.epochs = 3}); }

// expect: compiles
void learn() { trainer().fit(train, {.epochs = 3}, EarlyStopping{}); }

// expect: chorale: fit takes a dataset that has rows and targets, not two vectors
void learn() { trainer().fit(train, y); }

// expect: chorale: the second argument of fit is neither FitOptions, a callback nor a sink
void learn() { trainer().fit(train, model); }

// expect: compiles
auto scores() { return trainer().evaluate(train); }

// expect: chorale: evaluate and predict take one dataset that has rows and targets, and nothing else
auto scores() { return trainer().evaluate(train, y); }
