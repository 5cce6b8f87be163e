// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/coordinator.hpp>

#include <string>
#include <tuple>
#include <vector>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

using Batches = WorkerStream<Batch>;

auto const samples = data::from_tensors(std::vector<float>(64), std::vector<int>(8), 8);
auto const rows    = PerWorkerDataset<Batch>{"rows", [](WorkerShare) { return samples.batch(4); }};
auto const count   = Closure{"count", [](auto&, Batches&, int most) { return most; }};

void coordinate_with(auto const& closure, auto&& program) {
  coordinate(ParameterServerStrategy{Cluster::local(3, 1)}, model, LocalTransport{}, std::tuple{closure, rows},
             program);
}

// expect: compiles
void run() {
  coordinate_with(count, [](auto& coordinator, auto&) {
    auto const batches = coordinator.create_per_worker_dataset(rows);
    auto const most    = coordinator.fetch(coordinator.schedule(count, batches, 10));
    coordinator.schedule(count, batches, most);
  });
}

// expect: chorale: PerWorkerDataset<Element>'s function takes a WorkerShare and returns a Dataset of Element
auto const single = PerWorkerDataset<Batch>{"rows", [](WorkerShare) { return samples; }};

// expect: chorale: a closure is a lambda that takes `auto& here`, or the worker's type, and then arguments whose types it names
auto const closure = Closure{"count", [](auto&, auto most) { return most; }};
void run() {
  coordinate_with(closure, [](auto& coordinator, auto&) { coordinator.schedule(closure, 10); });
}

// expect: chorale: a closure is a lambda that takes `auto& here`, or the worker's type, and then arguments whose types it names
auto const closure = Closure{"count", [](int most) { return most; }};
void run() {
  coordinate_with(closure, [](auto& coordinator, auto&) { coordinator.schedule(closure, 10); });
}

// expect: chorale: the parameters of a closure after `here` travel by message: plain data, or std::string or std::vector of it
auto const closure = Closure{"count", [](auto&, std::vector<std::string> const& files) { return files.size(); }};
void run() {
  coordinate_with(closure, [](auto& coordinator, auto&) {
    coordinator.schedule(closure, std::vector<std::string>{"first", "second"});
  });
}

// expect: chorale: the result of a closure travels by message: plain data, or std::string or std::vector of it
auto const closure = Closure{"files", [](auto&, int most) { return std::vector<std::string>(most); }};
auto run() {
  auto files = std::vector<std::string>{};
  coordinate_with(closure,
                  [&](auto& coordinator, auto&) { files = coordinator.fetch(coordinator.schedule(closure, 10)); });
  return files;
}

// expect: chorale: a closure has at most 4 streams
auto const closure = Closure{"count", [](auto&, Batches&, Batches&, Batches&, Batches&, Batches&) { return 5; }};
void run() {
  coordinate_with(closure, [](auto& coordinator, auto&) {
    auto const batches = coordinator.create_per_worker_dataset(rows);
    coordinator.schedule(closure, batches, batches, batches, batches, batches);
  });
}

// expect: chorale: schedule() takes the closure, and the arguments that it has behind `here`, as many
void run() {
  coordinate_with(count, [](auto& coordinator, auto&) { coordinator.schedule(count, 10); });
}

// expect: chorale: where a closure has a WorkerStream<Element>&, schedule() takes what create_per_worker_dataset() returned
void run() {
  coordinate_with(count, [](auto& coordinator, auto&) { coordinator.schedule(count, rows, 10); });
}

// expect: chorale: an argument of schedule() does not convert to the type of the closure's parameter in its place
void run() {
  coordinate_with(count, [](auto& coordinator, auto&) {
    coordinator.schedule(count, coordinator.create_per_worker_dataset(rows), "ten");
  });
}
