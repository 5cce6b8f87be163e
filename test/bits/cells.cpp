// SPDX-License-Identifier: Apache-2.0
//
// What small networks learn, as hashes: a line `network strategy: variables scores` each. tools/bits compiles it for
// two commits: it names only what both have.
//
//   cells           every strategy in one process
//   cells ranks     one task of tools/launch: workers by shared memory and TCP
#include "test/support/folder.hpp"
#include "test/support/tiny.hpp"

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/chorale.hpp>
#include <chorale/cluster/from_env.hpp>
#include <chorale/parallel.hpp>
#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/hybrid.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;

namespace {

struct Cnn : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<4, 3>, nn::BatchNorm<>, nn::ReLU, nn::MaxPool2D<2>,
                            nn::Flatten, nn::Dense<16>, nn::Tanh, nn::Dropout<30>, nn::Dense<3>> {};
struct Perceptron : nn::Sequential<nn::Input<64>, nn::Dense<16>, nn::ReLU, nn::Dense<12>, nn::Tanh, nn::Dense<3>> {};

constexpr int text_length = 6, characters = 10, vector_size = 8;
struct Text : Field<int, text_length> {};  // (B, T)
struct Next : Field<int, text_length> {};  // (B, T) the one after each

struct Gpt : nn::Graph<Text> {
  nn::Embedding<characters, vector_size> table;
  nn::Positions<text_length, vector_size> positions;
  nn::LayerNorm first, last;
  nn::Dense<3 * vector_size> queries_keys_values;
  nn::Dense<vector_size> mixed;

  constexpr auto operator()(auto text) const {
    auto const x = positions(table(text));  // (B, T, 8)
    auto const y = x + mixed(nn::CausalHeads<2>{}(queries_keys_values(first(x))));
    return nn::outputs<Next>(table.logits(last(y)));  // (B, T, 10)
  }
};

struct Recurrent : nn::Graph<Text> {
  nn::Embedding<characters, vector_size, nn::DenseGradient> table;
  nn::LSTM<6, nn::Sequences> states;
  nn::Dense<characters> next;

  constexpr auto operator()(auto text) const { return nn::outputs<Next>(next(states(table(text)))); }
};

/// FNV-1a over the bits of numbers.
class Hash {
 public:
  void add(double x) {
    for (auto bits = std::bit_cast<std::uint64_t>(x), i = std::uint64_t{0}; i < 8; ++i, bits >>= 8)
      sum_ = (sum_ ^ (bits & 255)) * 0x100000001b3;
  }
  unsigned long long sum() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325;
};

/// Five batches, of 12 rows in mean: no number of replicas divides all of them.
template <class Net> auto rows() {
  if constexpr (nn::GraphNetwork<Net>) {
    auto counts = std::vector<float>(60);
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<float>(i);
    return data::from_tensors(counts, counts, 1)
        .template map<Text, Next>([](auto const& row, auto& to) {
          auto text = std::vector<int>(text_length + 1);
          for (std::size_t t = 0; t < text.size(); ++t)
            text[t] = static_cast<int>(Random{5, static_cast<std::uint64_t>(row.x[0])}.below(t, characters));
          to[Text{}].assign(text.begin(), text.end() - 1);
          to[Next{}].assign(text.begin() + 1, text.end());
        })
        .batch(13);
  } else {
    return tiny::Batches<int>{tiny::batch<int>(76, 64, 1), {16, 13, 24, 7, 16}};
  }
}

/// Trains two epochs of Adam, and prints hashes of the variables and of what was counted.
template <class Net> void cell(std::string const& what, auto strategy, auto reduce, auto transport) {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}), strategy,
                         reduce, transport, 7};
  auto counted = Hash{}, variables = Hash{};
  for (auto const& epoch : trainer.fit(rows<Net>(), {.epochs = 2, .show = Show::nothing})) {
    counted.add(epoch.scores.loss());
    counted.add(epoch.scores.metric(0));
  }
  auto values = std::map<std::string, std::vector<float>, std::less<>>{};  // by name
  if constexpr (std::is_same_v<decltype(transport), LocalTransport>) {
    auto const folder = chorale::test::Folder{};
    trainer.save(folder / "weights");  // shards as one network
    auto const file = SafetensorsFile::read(folder / "weights");
    for (auto const& tensor : file.tensors()) values[std::string{tensor.name}] = file.floats(tensor.name);
  } else {  // only the chief saves
    auto const all = trainer.variables();
    for (std::size_t i = 0; i < all.size(); ++i)
      values[std::string{all[i].name}].assign(all[i].value.begin(), all[i].value.end());
  }
  for (auto const& [name, of_one] : values)
    for (auto const x : of_one) variables.add(static_cast<double>(x));
  std::printf("%s: %016llx %016llx\n", what.c_str(), variables.sum(), counted.sum());
  std::fflush(stdout);
}

template <class Net> void of_one_process(std::string const& net) {
  auto const run = [&](char const* strategy, auto made, auto reduce) {
    cell<Net>(net + " " + strategy, made, reduce, LocalTransport{});
  };
  run("one device", OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{});
  run("mirrored", MirroredStrategy{Cpu::logical(3)}, Reproducible<8>{});
  run("by ring", MirroredStrategy{Cpu::logical(3)}, RingAllReduce{});
  run("direct", MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{});
  run("central storage", CentralStorageStrategy{Cpu::logical(2)}, Reproducible<8>{});
  if constexpr (!std::is_same_v<Net, Cnn>) {  // batch normalization has no servers or shards
    run("servers",
        ParameterServerStrategy{Cluster::local(2, 2), Synchronous{},
                                placement::Partitioned<placement::FixedShards<2>>{}},
        Reproducible<8>{});
    run("zero 1", ShardedStrategy<Zero::one>{Cpu::logical(2)}, Reproducible<8>{});
    run("zero 2", ShardedStrategy<Zero::two>{Cpu::logical(3)}, Reproducible<8>{});
    run("zero 3", ShardedStrategy<Zero::three>{Cpu::logical(3)}, Reproducible<8>{});
    run("hybrid", HybridStrategy<Zero::three, 2>{Cpu::logical(4)}, Reproducible<8>{});
  }
  if constexpr (std::is_same_v<Net, Gpt>) {
    run("stages", MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<8>>()},
        Reproducible<8>{});
    run("mesh", MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::logical(4)}}, Reproducible<8>{});
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view{argv[1]} == "ranks") {
    auto const cluster = Cluster::from_env();
    auto const n = std::to_string(MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)}.num_replicas()) + " ranks by ";
    auto const workers = [&] { return MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)}; };
    cell<Cnn>("cnn " + n + "shared memory", workers(), Reproducible<8>{}, SharedMemoryTransport{});
    cell<Cnn>("cnn " + n + "TCP", workers(), Reproducible<8>{}, TcpTransport{});
    cell<Perceptron>("perceptron " + n + "shared memory, ring", workers(), RingAllReduce{}, SharedMemoryTransport{});
    return 0;
  }
  of_one_process<Cnn>("cnn");
  of_one_process<Recurrent>("lstm");
  of_one_process<Perceptron>("perceptron");
  of_one_process<Gpt>("gpt");
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
