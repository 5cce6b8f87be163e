// SPDX-License-Identifier: Apache-2.0
//
// endure FOLDER UPDATES EVERY TRANSPORT [say]: trains with a checkpoint every EVERY updates, or with one at the end if
// that is 0, goes on from the newest one, and says at the end which bits its variables have; with `say`, also each
// update. SIGTERM asks it to end; then it says how many checkpoints it sees. TRANSPORT is tcp or shm.
#include <chorale/chorale.hpp>
#include <chorale/cluster/from_env.hpp>
#include <chorale/core/end_on_signal.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>,           // (B, 28, 28, 1)
                            nn::Conv2D<8, 3>, nn::ReLU,     // (B, 26, 26, 8)
                            nn::MaxPool2D<2>, nn::Flatten,  // (B, 1352)
                            nn::Dropout<25>,                // (B, 1352)
                            nn::Dense<10>> {};              // (B, 10) logits

/// Batches that take 2 ms to come, so that a test of minutes leaves the cores to others.
template <class Data> struct Slow {
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
template <class Data> Slow(Data) -> Slow<Data>;

struct Say {
  bool each = false;
  void on_step_end(auto& trainer, StepEnd const&) const {
    if (!each) return;
    std::printf("update %llu\n", static_cast<unsigned long long>(trainer.step()));
    std::fflush(stdout);
  }
};

template <class T> void train(std::string const& folder, int updates, int every, bool say, T transport) {
  auto const end  = EndOnSignal{};
  auto const rows = Slow{data::digits(1000, 1).map(data::scale).shuffle(1000, 1).batch(32)};
  auto const pass = every == 0 ? updates : 5 * every;
  auto trainer    = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                         MultiWorkerMirroredStrategy{Cluster::from_env()}, RingAllReduce{}, std::move(transport)};
  try {
    trainer.fit(rows,
                {.epochs           = updates / pass,
                 .show             = Show::nothing,
                 .checkpoints      = {.folder = folder},
                 .checkpoint_every = static_cast<std::size_t>(every),
                 .asked_to_end     = end.asked(),
                 .steps_per_epoch  = static_cast<std::size_t>(pass)},
                Say{say});
  } catch (Preempted const& asked) {
    auto const is_whole = [](auto const& entry) { return entry.path().string().find(".tmp") == std::string::npos; };
    std::printf("%d checkpoints: %s\n",
                static_cast<int>(std::ranges::count_if(std::filesystem::directory_iterator{folder}, is_whole)),
                first_line(asked).c_str());
    std::fflush(stdout);
    throw;
  }
  std::printf("bits %016llx after %llu updates\n", static_cast<unsigned long long>(trainer.hashes()[0]),
              static_cast<unsigned long long>(trainer.step()));
}

int main(int argc, char** argv) {
  try {
    auto const options = std::vector<std::string>(argv + 1, argv + argc);
    if (options.size() < 4 || options.size() > 5)
      throw BadArgument{"endure takes 4 or 5 arguments, got " + std::to_string(options.size()),
                        "endure FOLDER UPDATES EVERY TRANSPORT [say]"};
    auto const with = [&](auto transport) {
      train(options[0], std::stoi(options[1]), std::stoi(options[2]), options.size() == 5, std::move(transport));
    };
    if (options[3] == "shm") with(SharedMemoryTransport{});
    else with(TcpTransport{});
    return 0;
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return exit_code(error);
  }
}
