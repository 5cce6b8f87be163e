// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds of a training step of models that people know, beside PyTorch and TensorFlow.
//
//   CHORALE_PYTHON=interpreter tools/run bench/models --json
//
//   lenet           the CNN of the examples, batch 64, Adam
//   character_gpt   4 blocks, 4 heads, 128 wide, 64 characters, batch 12, AdamW, gradients clipped
//   tickets         LSTM 128 over 40 words, LSTM 32 over 200, two outputs, batch 64, Adam
//   dlrm            six tables of up to 1,000,000 x 64, 10 ids each, two MLPs, pairs, batch 2,048, SGD
//   resnet          ResNet-50 over 224 x 224 pixels, batch 8, SGD with momentum
//   gan             two MLPs over 784 pixels, batch 64, Adam: a step of each
//   gpt2            12 blocks, 12 heads, 768 wide, 64 words, 124 million numbers, batch 4, AdamW; gpt2_recompute with
//                   blocks whose values are computed again, PyTorch's with torch.utils.checkpoint
//
// Ours is one replica with all threads, and one replica for each thread, which share a batch, DirectAllReduce. Peers
// are PyTorch, eager and compiled, and for tickets and resnet TensorFlow as well, without and with XLA; each in a process
// of its own with as many threads, asked in turn, several rounds; medians. A peer that the interpreter does not have is
// left out.
// `percent_of_floor` is the time that a step must take over what it takes: its products at the speed of a large product
// of oneDNN's on as many threads, and what it reads and writes of variables, gradients and slots at the speed of copies.
#include "support/models_nets.hpp"
#include "support/models_peers.hpp"
#include "support/report.hpp"

#include <chorale/chorale.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace chorale;

namespace {

/// How many replicas of a model share its batch, and the cores of all of them.
struct Divided {
  int threads = 1, replicas = 1;

  std::vector<Cpu> devices() const {
    auto const cores = Cpu{}.cores();
    auto const each  = threads / replicas;
    auto all         = std::vector<Cpu>{};
    for (auto first = cores.begin(); std::ssize(all) < replicas; first += each)
      all.push_back(Cpu{std::vector<int>(first, first + each)});
    return all;
  }
};

/// The median of a step's milliseconds, after three; of fewer steps after one.
template <class Step> double median_ms(int steps, Step&& step) {
  auto times = std::vector<double>{};
  for (int i = steps < 3 ? -1 : -3; i < steps; ++i) {
    auto const start = std::chrono::steady_clock::now();
    step();
    if (i >= 0) times.push_back(1e3 * bench::seconds_since(start));
  }
  return bench::median(times);
}

/// A model over one batch, of which each replica has a share: part(replica, replicas).
template <class Model, class Part> double step_ms(Model const& model, Divided split, int steps, Part&& part) {
  auto live   = Live{MirroredStrategy{split.devices()}, DirectAllReduce{}, LocalTransport{}};
  auto copies = live.create(model, 1);
  auto shares = std::vector<decltype(part(0, 1))>{};
  for (int i = 0; i < split.replicas; ++i) shares.push_back(part(i, split.replicas));
  auto batch = PerReplica{std::move(shares)};
  return median_ms(steps, [&] {
    live.run(
        [&](auto& replica, auto& copy, auto const& rows) {
          auto result = replica.value_and_gradient_ahead(copy, rows);
          live.update(replica, copy, result.gradients);
        },
        copies, batch);
  });
}

/// Milliseconds of a step of a network that learns the next of 64 words, or characters.
template <class Net, int words> double words_ms(Divided split, int steps) {
  using namespace bench::models;
  auto const text = ids(Net::batch * 64, words, 0), next = ids(Net::batch * 64, words, 1);
  return step_ms(Net::model(), split, words > 1'000 ? std::max(1, steps / 10) : steps,
                 [&](int i, int n) { return Rows<Text, Next>{text, next}.part(i, n); });
}

double tickets_ms(Divided split, int steps) {
  using namespace bench::models;
  constexpr auto n = Tickets::batch;
  auto const title = ids(n * 40, 10'000, 0), body = ids(n * 200, 10'000, 1), department = ids(n, 4, 2);
  auto const tags = uniform(n * 12, 3), priority = column<float>(n, [](auto i) { return i % 2; });
  return step_ms(Tickets::model(), split, steps, [&](int i, int of) {
    return Rows<Title, Body, Tags, Priority, Department>{title, body, tags, priority, department}.part(i, of);
  });
}

template <int Smaller> double dlrm_ms(Divided split, int steps) {
  using namespace bench::models;
  using Net          = Dlrm<Smaller>;
  auto const bags    = std::array{Net::bag(0), Net::bag(1), Net::bag(2), Net::bag(3), Net::bag(4), Net::bag(5)};
  auto const numbers = uniform(Net::batch * 13, 8);
  auto const clicked = column<float>(Net::batch, [](auto i) { return i % 2; });
  return step_ms(Net::model(), split, steps, [&](int i, int n) {
    return Rows<Numbers, Bag<0>, Bag<1>, Bag<2>, Bag<3>, Bag<4>, Bag<5>, Clicked>{numbers, bags[0], bags[1], bags[2],
                                                                                  bags[3], bags[4], bags[5], clicked}
        .part(i, n);
  });
}

double gan_ms(Divided split, int steps) {
  using namespace bench::models;
  constexpr auto n = Gan::batch;
  auto const rule  = optim::Adam{.learning_rate = 2e-4F, .beta_1 = 0.5F};
  auto const noise = uniform(n * 100, 0), picture = uniform(n * 784, 1);
  auto const batch = Rows<Noise, Picture>{noise, picture};
  auto live        = Live{MirroredStrategy{split.devices()}, DirectAllReduce{}, LocalTransport{}};
  auto generators  = live.create(nn::compile<Generator>(loss::Given{}, rule), 1);
  auto critics     = live.create(nn::compile<Critic>(loss::BinaryCrossEntropy{}, rule), 2);
  auto shares      = std::vector<Rows<Noise, Picture>>{};
  for (int i = 0; i < split.replicas; ++i) shares.push_back(batch.part(i, split.replicas));
  auto all = PerReplica{std::move(shares)};
  return median_ms(steps, [&] {
    live.run(
        [&](auto& replica, auto& generator, auto& critic, auto const& rows) {
          auto const learn = [&](auto& model, auto const& of_model) {
            auto result = replica.value_and_gradient(model, of_model);
            live.update(replica, model, result.gradients);
          };
          auto const fakes = generator.outputs(rows);
          auto pictures    = std::vector<float>(rows[Picture{}].begin(), rows[Picture{}].end());
          pictures.insert(pictures.end(), fakes.begin(), fakes.end());
          auto is_real = std::vector<float>(rows.rows, 1.0F);
          is_real.resize(2 * rows.rows, 0.0F);
          learn(critic, Rows<Picture, IsReal>{pictures, is_real});
          auto const ones = std::vector<float>(rows.rows, 1.0F);
          learn(generator, Rows<Picture>{critic.gradient_by(Picture{}, Rows<Picture, IsReal>{fakes, ones})});
        },
        generators, critics, all);
  });
}

template <bool Small> double resnet_ms(Divided split, int steps) {
  using Net = bench::models::ResNet<Small>;
  return step_ms(Net::model(), split, steps, [net = Net{}](int i, int n) { return net.part(i, n); });
}

/// Megabytes of a process: VmRSS are now in memory, VmHWM at the most so far.
double megabytes(std::string const& which) {
  auto file = std::ifstream{"/proc/self/status"};
  for (auto line = std::string{}; std::getline(file, line);)
    if (line.starts_with(which + ":")) return std::stod(line.substr(which.size() + 1)) / 1024;
  return 0;
}

/// A model that this program measures.
struct Case {
  std::string name;
  std::size_t batch;
  bench::models::Work work;
  double (*ms)(Divided, int steps);
};

std::vector<Case> cases(bool quick) {
  using namespace bench::models;
  auto const of = [](std::string name, auto const& net, double (*ms)(Divided, int)) {
    return Case{std::move(name), net.batch, net.work, ms};
  };
  return {of("lenet", LeNet{},
             [](Divided split, int steps) {
               return step_ms(LeNet::model(), split, steps, [net = LeNet{}](int i, int n) { return net.part(i, n); });
             }),
          of("character_gpt", CharacterGpt{}, words_ms<CharacterGpt, 65>),
          of("tickets", Tickets{}, tickets_ms),
          quick ? of("dlrm", Dlrm<10>{}, dlrm_ms<10>) : of("dlrm", Dlrm<1>{}, dlrm_ms<1>),
          quick ? of("resnet", ResNet<true>{}, resnet_ms<true>) : of("resnet", ResNet<false>{}, resnet_ms<false>),
          of("gan", Gan{}, gan_ms),
          of("gpt2", Gpt2<Gpt2Block>{}, words_ms<Gpt2<Gpt2Block>, 50'257>),
          of("gpt2_recompute", Gpt2<nn::Recompute<Gpt2Block>>{}, words_ms<Gpt2<nn::Recompute<Gpt2Block>>, 50'257>)};
}

/// What threads of this machine can do in a second: multiplications of a large product, and bytes that copies of memory
/// larger than the caches read and write.
struct Machine {
  double products, bytes;
};

Machine measure_machine(int threads, bool quick) {
  auto const n     = std::size_t{quick ? 256U : 2048U};
  auto const large = std::size_t{quick ? 1U : 24U} << 20;  // numbers
  auto of_threads  = std::vector<Machine>(static_cast<std::size_t>(threads));
  auto all         = std::vector<std::thread>{};
  for (std::size_t t = 0; t < of_threads.size(); ++t)
    all.emplace_back([&, t, core = Divided{threads, threads}.devices()[t]] {
      auto const scope = Cpu::Scope{core};
      auto a = std::vector<float>(n * n, 1.0F), b = a, c = a, from = std::vector<float>(large, 1.0F), to = from;
      auto const best = [](auto&& work) {
        auto least = 1e9;
        for (int i = 0; i < 7; ++i) {
          auto const start = std::chrono::steady_clock::now();
          work();
          least = std::min(least, bench::seconds_since(start));
        }
        return least;
      };
      of_threads[t].products = static_cast<double>(n * n * n) /
                               best([&] { cpu::matmul(n, n, n, {a.data(), n}, {b.data(), n}, {c.data(), n}); });
      of_threads[t].bytes = 2.0 * static_cast<double>(large) * sizeof(float) /
                            best([&] { std::memcpy(to.data(), from.data(), large * sizeof(float)); });
    });
  for (auto& one : all) one.join();
  auto sum = Machine{0, 0};
  for (auto const& one : of_threads) sum = {sum.products + one.products, sum.bytes + one.bytes};
  return sum;
}

struct Options {
  bool json = false, quick = false;
  int rounds = 5, steps = 30;
  std::vector<int> threads;
  std::vector<std::string> models;
};

void report(Case const& one, int threads, Machine const& machine, Options const& o) {
  auto const splits = threads == 1 ? std::vector{1} : std::vector{1, threads};
  auto peers        = o.quick ? nullptr : std::make_unique<bench::ModelPeers>(one.name, one.batch, threads);
  auto ms = std::vector<std::vector<double>>(splits.size()), memory = ms;
  for (int round = 0; round < o.rounds; ++round) {
    for (std::size_t i = 0; i < splits.size(); ++i) {
      auto const said = bench::output_of("'" + bench::this_program() + "' --only " + one.name + " --threads " +
                                         std::to_string(threads) + " --replicas " + std::to_string(splits[i]) +
                                         " --steps " + std::to_string(o.steps) + (o.quick ? " --quick" : ""));
      ms[i].push_back(bench::number_after(said, "ms_per_step"));
      memory[i].push_back(bench::number_after(said, "megabytes"));
    }
    if (peers != nullptr) peers->measure(o.steps);
  }
  auto const floor = 1e3 * (one.work.products / machine.products + one.work.bytes / machine.bytes);
  for (std::size_t i = 0; i < splits.size(); ++i) {
    auto const ours = bench::median(ms[i]);
    auto const row  = [&] {
      return bench::Row{(o.quick ? "models_quick/" : "models/") + one.name}
          .add("model", one.name)
          .add("batch", static_cast<double>(one.batch), "%.0f")
          .add("threads", threads, "%.0f")
          .add("replicas", splits[i], "%.0f")
          .add("ms", ours)
          .add("percent_of_floor", 100 * floor / ours, "%.1f")
          .add("megabytes", bench::median(memory[i]), "%.0f")
          .add_to_json("onednn", onednn::version());
    };
    if (peers == nullptr || peers->ms().empty()) row().print(o.json);
    else
      for (auto const& [name, theirs] : peers->ms())
        row()
            .add("peer", name)
            .add("peer_ms", bench::median(theirs))
            .add("ratio", bench::median(theirs) / ours, "%.2f")
            .add("peer_megabytes", peers->megabytes().at(name), "%.0f")
            .print(o.json);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"Milliseconds of a training step of models that people know, beside PyTorch and TensorFlow."};
  auto o     = Options{};
  auto only  = std::string{};
  auto split = Divided{};
  flags.add_flag("--json", o.json, "one JSON object a line");
  flags.add_flag("--quick", o.quick, "small tables, without peers: to see that the program runs");
  flags.add_option("--rounds", o.rounds, "of every contender in turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags.add_option("--steps", o.steps, "of a contender in a round")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--threads", o.threads, "numbers of threads; without it 1, and as many as there are cores")
      ->check(CLI::Range(1, Cpu{}.threads()));
  flags.add_option("--models", o.models, "names of the models; without it all");
  flags.add_option("--only", only, "measure one model, and print ms_per_step");
  flags.add_option("--replicas", split.replicas, "with --only: how many share the threads and the batch")
      ->check(CLI::Range(1, Cpu{}.threads()));
  CLI11_PARSE(flags, argc, argv);
  if (o.threads.empty()) o.threads = Cpu{}.threads() == 1 ? std::vector{1} : std::vector{1, Cpu{}.threads()};
  auto const all    = cases(o.quick);
  auto const called = [&](std::string const& name) {
    auto const it = std::ranges::find(all, name, &Case::name);
    if (it != all.end()) return *it;
    throw BadArgument{"there is no model " + name + ".",
                      "lenet, character_gpt, tickets, dlrm, resnet, gan, gpt2 or gpt2_recompute."};
  };
  if (!only.empty()) {
    auto const before = megabytes("VmRSS");
    split.threads     = std::max(o.threads[0], split.replicas);
    auto const ms     = called(only).ms(split, o.steps);
    std::printf("ms_per_step %.4f megabytes %.1f\n", ms, megabytes("VmHWM") - before);
    return 0;
  }
  auto chosen = std::vector<Case>{};
  for (auto const& name : o.models) chosen.push_back(called(name));
  for (auto const& one : all)
    if (o.models.empty() && !(o.quick && one.name.starts_with("gpt2"))) chosen.push_back(one);  // 2.5 GB
  if (!o.json)
    std::printf("%s; %s; %d rounds in turn, medians\n", bench::machine().c_str(), onednn::version().c_str(), o.rounds);
  for (auto const threads : o.threads) {
    auto const machine = measure_machine(threads, o.quick);
    for (auto const& one : chosen) report(one, threads, machine, o);
  }
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
