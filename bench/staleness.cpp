// SPDX-License-Identifier: Apache-2.0
//
// What staleness costs: a small network learns MNIST over a parameter server, with up to 64 virtual workers.
//
//   tools/run bench/staleness --json
//
// Gradients, updates and test accuracy are real, computed on this machine by the strategy's own client and service.
// Time is virtual: a step of a worker takes 10 ms, 10 % either way; one in 50 takes four times as long; one worker in
// 16 computes three times as slowly. All from a seed, so that two runs print the same. Every line has learned from
// equally many examples, 64 a push, with the same learning rate for every update; with --scaled, the rate of a round is
// multiplied by the number of workers that it sums.
//
// MNIST is read from $CHORALE_MNIST, or ../shared/data/mnist seen from here or from a folder above; else digits are
// drawn.
#include "support/report.hpp"

#include <chorale/data/dataset.hpp>
#include <chorale/data/digits.hpp>
#include <chorale/data/formats/idx.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/strategy/parameter_server/client.hpp>
#include <chorale/strategy/parameter_server/service.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/simulated.hpp>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <optional>

using namespace chorale;
using namespace std::chrono_literals;

namespace {

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Flatten, nn::Dense<64, nn::HeUniform>, nn::ReLU, nn::Dense<10>> {
};

using Model = decltype(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, metric::Accuracy{}));
using Copy  = Model::instance<Cpu>;

struct Options {
  int epochs = 2, largest = 64;
  float rate = 0.02F;
  Seed seed  = 1;
  bool json = false, scaled = false;
};

constexpr int rows = 64;  // of a push

std::optional<std::filesystem::path> mnist_folder() {
  auto code = std::error_code{};
  if (auto const* named = std::getenv("CHORALE_MNIST"); named != nullptr && *named != '\0') return named;
  auto here = std::filesystem::current_path(code);
  for (int level = 0; level < 8; ++level, here = here.parent_path())
    if (auto const folder = here / "../shared/data/mnist"; std::filesystem::is_directory(folder, code)) return folder;
  return {};
}

/// The batches of some epochs, which the workers take as they come for them.
template <class Batches> class Feed {
 public:
  Feed(Batches const& batches, int epochs) : batches_{&batches}, left_{epochs}, stream_{batches.stream(0)} {}

  bool next(typename Batches::element& batch) {
    while (left_ > 0) {
      if (stream_.next(batch)) return true;
      if (--left_ > 0) stream_ = batches_->stream(++epoch_);
    }
    return false;
  }

 private:
  Batches const* batches_;
  int left_;
  std::size_t epoch_ = 0;
  decltype(std::declval<Batches const&>().stream(0)) stream_;
};

struct Learned {
  double accuracy, loss;   // of the test images
  double staleness, most;  // updates between a pull and its push
  double updates, dropped;
  VirtualTime time;
};

VirtualTime time_of_step(Seed seed, Rank worker, std::uint64_t step) {
  auto const random = Random{seed, 1'000 + static_cast<std::uint64_t>(worker)};
  auto const even   = 0.9 + 0.2 * static_cast<double>(random.uniform(2 * step));
  return virtual_seconds(0.01 * even * (worker % 16 == 3 ? 3 : 1) * (random.below(2 * step + 1, 50) == 0 ? 4 : 1));
}

/// Of updates by single pushes, as the workers see them; of rounds, as the server counts them.
struct Staleness {
  double sum = 0, pushes = 0, most = 0;

  void add(double updates, double times = 1) {
    sum += updates * times;
    pushes += times;
    most = std::max(most, updates);
  }
};

template <class Test> void judge(Copy& copy, Test const& test, Learned& learned) {
  auto total = std::array<double, plan::header>{};  // loss, rows, right
  auto sums  = std::array<float, plan::header>{};
  auto batch = typename Test::element{};
  for (auto stream = test.stream(0); stream.next(batch);) {
    copy.evaluate(batch, sums);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += static_cast<double>(sums[i]);
  }
  learned.loss     = StepHeader{total}.loss() / StepHeader{total}.rows();
  learned.accuracy = StepHeader{total}.metric(0) / StepHeader{total}.rows();
}

template <class C, class Train, class Test>
Learned learn(Options const& o, int workers, C when, Train const& train, Test const& test) {
  auto const scale  = o.scaled && C::rounds ? static_cast<float>(workers - C::spares) : 1.0F;
  auto const rule   = optim::SGD{.learning_rate = o.rate * scale};
  auto const model  = nn::compile<Net>(loss::SparseCrossEntropy{}, rule, metric::Accuracy{});
  auto const device = Cpu::logical(1)[0];
  auto copies       = std::vector<std::unique_ptr<Copy>>{};
  for (int i = 0; i <= workers; ++i) copies.push_back(std::make_unique<Copy>(model.instantiate(device, o.seed)));
  auto const flat      = copies.back()->net.variables().values;  // the server's, in the end
  auto const shards    = parameter_server::ShardLayout{workers, {{{plan::header, flat.size() - plan::trailer}}}};
  auto feed            = Feed{train, o.epochs};
  auto staleness       = Staleness{};
  auto learned         = Learned{};
  auto const* ledger   = static_cast<parameter_server::ServerStatistics const*>(nullptr);
  auto const transport = SimulatedTransport{.failures = FailureScope::peer, .stack_bytes = 4 << 20};
  learned.time         = simulate(
                     workers + 1,
                     [&](SimulatedEndpoint& at) {
                       if (at.rank() == workers) {
                         auto service = parameter_server::Server{at, when, rule, shards, flat};
                         ledger       = &service.ledger();
                         service.serve();
                         for (std::size_t i = 0; C::rounds && i < ledger->staleness.size(); ++i)
                           if (ledger->staleness[i] > 0)
                             staleness.add(static_cast<double>(i), static_cast<double>(ledger->staleness[i]));
                         learned.updates = static_cast<double>(ledger->updates);
                         learned.dropped = static_cast<double>(ledger->late);
                         std::ranges::copy(service.shard().values(), flat.begin() + plan::header);
                         return;
                       }
                       auto& copy  = *copies[static_cast<std::size_t>(at.rank())];
                       auto client = parameter_server::Client<SimulatedEndpoint>{at, shards};
                       auto batch  = typename Train::element{};
                       auto seen   = std::uint64_t{0};
                       for (std::uint64_t step = 0; feed.next(batch); ++step) {
                         copy.value_and_gradient(batch, 0, [](std::size_t) {});
                         at.work(time_of_step(o.seed, at.rank(), step));
                         client.push_and_pull(copy.gradients(), copy.net.variables(), 0);
                         ++copy.optimizer.now.step;
                         auto const updates = std::exchange(seen, ledger->updates);
                         if (!C::rounds) staleness.add(static_cast<double>(seen - updates) - 1);
                       }
                       client.leave();
                     },
                     transport)
                     .check()
                     .time;
  learned.staleness = staleness.sum / std::max(1.0, staleness.pushes);
  learned.most      = staleness.most;
  judge(*copies.back(), test, learned);
  return learned;
}

void print(Options const& o, std::string const& how, int workers, Learned const& learned) {
  if (!o.json) {
    std::printf("%-16s %7d %8.4f %8.4f %8.0f %8.0f %9.2f %6.0f %10.2f\n", how.c_str(), workers, learned.accuracy,
                learned.loss, learned.updates, learned.dropped, learned.staleness, learned.most, seconds(learned.time));
    std::fflush(stdout);
    return;
  }
  bench::Row{"staleness/" + how}
      .add("workers", workers, "%.0f")
      .add("accuracy", learned.accuracy, "%.4f")
      .add("test_loss", learned.loss)
      .add("updates", learned.updates, "%.0f")
      .add("dropped", learned.dropped, "%.0f")
      .add("staleness", learned.staleness)
      .add("largest_staleness", learned.most, "%.0f")
      .add("virtual_s", seconds(learned.time))
      .add("rate", static_cast<double>(o.rate))
      .add("rate_of_rounds", o.scaled ? "times workers" : "the same")
      .print(true);
}

template <class Train, class Test> void compare(Options const& o, Train const& train, Test const& test) {
  if (!o.json)
    std::printf("%-16s %7s %8s %8s %8s %8s %9s %6s %10s\n", "consistency", "workers", "accuracy", "loss", "updates",
                "dropped", "staleness", "most", "virtual s");
  for (int const workers : {1, 4, 16, 64}) {
    if (workers > o.largest) break;
    auto const with = [&](std::string const& how, auto when) {
      print(o, how, workers, learn(o, workers, when, train, test));
    };
    with("asynchronous", Asynchronous{});
    if (workers == 1) continue;  // all the same
    with("staleness 16", BoundedStaleness<16>{});
    with("staleness 4", BoundedStaleness<4>{});
    with("staleness 0", BoundedStaleness<0>{});
    with("synchronous", Synchronous{});
    if (workers == 4) with("1 backup", BackupWorkers<1>{});
    if (workers == 16) with("2 backups", BackupWorkers<2>{});
    if (workers == 64) with("8 backups", BackupWorkers<8>{});
  }
}

template <class Rows, class TestRows> void compare_on(Options const& o, Rows const& train, TestRows const& test) {
  compare(o, train.map(data::scale).cache().shuffle(10'000, o.seed).batch(rows),
          test.map(data::scale).cache().batch(250));
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"What staleness costs: a parameter server learns MNIST with up to 64 virtual workers."};
  auto o     = Options{};
  int drawn  = 20'000;
  flags.add_flag("--json", o.json, "one JSON object a line");
  flags.add_flag("--scaled", o.scaled, "the rate of a round is --rate times the workers that it sums");
  flags.add_option("--epochs", o.epochs, "passes over the examples, by all workers together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags.add_option("--rate", o.rate, "learning rate of an update")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--largest", o.largest, "workers")->check(CLI::Range(1, 64))->capture_default_str();
  flags.add_option("--drawn", drawn, "digits, where there is no MNIST")
      ->check(CLI::Range(640, 60'000))
      ->capture_default_str();
  CLI11_PARSE(flags, argc, argv);
  auto const scope  = Cpu::Scope{Cpu::logical(1)[0]};
  auto const folder = mnist_folder();
  auto const n      = static_cast<std::size_t>(drawn);
  if (!o.json)
    std::printf("%s, %d epochs of %d a push, SGD %g; times are virtual\n", folder ? "MNIST" : "drawn digits", o.epochs,
                rows, static_cast<double>(o.rate));
  if (folder) compare_on(o, data::mnist(*folder, data::train), data::mnist(*folder, data::test));
  else compare_on(o, data::digits(n, o.seed), data::digits(n / 4, o.seed, n));
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
