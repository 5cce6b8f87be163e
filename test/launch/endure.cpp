// SPDX-License-Identifier: Apache-2.0
//
// endure FOLDER UPDATES: trains with a checkpoint every 100 updates, goes on from the newest one, and says at the end
// which bits its variables have.
#include <chorale/chorale.hpp>
#include <chorale/cluster/from_env.hpp>
#include <chorale/transport/tcp.hpp>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>

using namespace chorale;

struct Net : nn::Sequential<
    nn::Input<28, 28, 1>,                               // (B, 28, 28, 1)
    nn::Conv2D<8, 3>, nn::ReLU,                         // (B, 26, 26, 8)
    nn::MaxPool2D<2>, nn::Flatten,                      // (B, 1352)
    nn::Dropout<25>,                                    // (B, 1352)
    nn::Dense<10>> {};                                  // (B, 10) logits

/// Batches that take 2 ms to come, so that a test of minutes leaves the cores to others.
template <class Data>
struct Slow {
  using element = typename Data::element;
  Data whole;

  struct Stream {
    decltype(std::declval<Data const&>().stream(0)) from;
    bool next(element& batch) {
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
      return from.next(batch);
    }
  };
  Stream stream(std::size_t epoch) const { return {whole.stream(epoch)}; }
  std::optional<std::size_t> size() const { return whole.size(); }
};
template <class Data>
Slow(Data) -> Slow<Data>;

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw BadArgument{"endure takes 2 arguments, got " + std::to_string(argc - 1), "endure FOLDER UPDATES"};
    auto const train = Slow{data::digits(1000, 1).map(data::scale).shuffle(1000, 1).batch(32)};
    auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
    auto trainer     = Trainer{model, MultiWorkerMirroredStrategy{Cluster::from_env()}, RingAllReduce{}, TcpTransport{}};
    trainer.fit(train, {.epochs = std::stoi(argv[2]) / 500, .show = Show::nothing, .checkpoints = {.folder = argv[1]},
                        .checkpoint_every = 100, .steps_per_epoch = 500});
    std::printf("bits %016llx after %llu updates\n", static_cast<unsigned long long>(trainer.hashes()[0]),
                static_cast<unsigned long long>(trainer.step()));
    return 0;
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return exit_code(error);
  }
}
