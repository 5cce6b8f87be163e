// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds of a training step with products in float, and with their factors rounded to bf16.
//
//   tools/run bench/products --json
//
// One replica on all cores, SGD; each contender in a process of its own, in turn, several rounds; medians. The peer is
// PyTorch on the same cores, whose bf16 is torch.autocast; it needs python3-torch, or an interpreter with it that
// CHORALE_PYTHON names. `multiplying_ms` is what a step's products need by themselves at the speed of the fastest
// product of oneDNN's that was measured, a large square one: a step cannot take less. Where the CPU has no AMX both are
// float.
#include "support/report.hpp"

#include <chorale/chorale.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <iostream>
#include <map>
#include <string>
#include <vector>

using namespace chorale;

namespace {

struct Mlp : nn::Sequential<nn::Input<784>, nn::Dense<4096>, nn::ReLU, nn::Dense<4096>, nn::ReLU, nn::Dense<10>> {
  static constexpr auto name   = "mlp";
  static constexpr int rows    = 256;
  static constexpr double work = 784. * 4096 * 2 + 4096. * 4096 * 3 + 4096. * 10 * 3;  // multiplications of a row
};
struct Convolutions
    : nn::Sequential<nn::Input<32, 32, 64>, nn::Conv2D<64, 3, nn::Same>, nn::ReLU,
                     nn::Conv2D<128, 3, nn::Same, nn::Stride<2>>, nn::ReLU, nn::Conv2D<128, 3, nn::Same>, nn::ReLU,
                     nn::MaxPool2D<2>, nn::Flatten, nn::Dense<10>> {
  static constexpr auto name   = "convolutions";
  static constexpr int rows    = 64;
  static constexpr double work = 1024. * 576 * 64 * 2 + 256. * 576 * 128 * 3 + 256. * 1152 * 128 * 3;
};

/// The median of a step's milliseconds, after three.
template <class Net> double step_ms(int steps) {
  auto const device = Cpu{};
  auto const scope  = Cpu::Scope{device};
  auto model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.01F}).instantiate(device, 1);
  auto x     = std::vector<float>(Net::rows * Net::input::size);
  auto y     = std::vector<int>(Net::rows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, 0}.uniform(i);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int>(i % 10);
  auto const batch = Batch{.x = x, .y = y, .rows = Net::rows};
  auto times       = std::vector<double>{};
  for (int step = 0; step < steps; ++step) {
    auto const start = std::chrono::steady_clock::now();
    model.value_and_gradient(batch, 0, [](std::size_t) {});
    model.optimizer.apply(model.net.variables(), model.gradients());
    if (step >= 3) times.push_back(1e3 * bench::seconds_since(start));
  }
  return bench::median(times);
}

/// Multiplications and additions a second of a product of two square matrices, in 10^9.
double fastest_product(onednn::Runtime const& runtime) {
  constexpr auto n = 2048;
  auto const type  = runtime.factors();
  auto const wish  = onednn::desc{{n, n}, type, onednn::tag::any};
  auto const made  = onednn::describe<dnnl::matmul>(runtime.engine, {}, wish, wish, onednn::matrix(n, n));
  auto a = dnnl::memory{made.src_desc(), runtime.engine}, b = dnnl::memory{made.weights_desc(), runtime.engine},
       c      = dnnl::memory{made.dst_desc(), runtime.engine};
  auto stream = runtime.stream;
  auto best   = 1e9;
  for (int i = 0; i < 10; ++i) {
    auto const start = std::chrono::steady_clock::now();
    dnnl::matmul{made}.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    best = std::min(best, bench::seconds_since(start));
  }
  return double{n} * n * n / best / 1e9;
}

struct Options {
  int rounds = 3, steps = 15;
  bool json = false;
};

template <class Net> void report(Options const& options, bool peer) {
  auto ms = std::map<std::string, std::vector<double>>{};
  for (int round = 0; round < options.rounds; ++round)
    for (std::string const products : {"f32", "bf16"}) {
      auto const measure = [&](std::string const& command) {
        auto const text = bench::output_of(command + " --steps " + std::to_string(options.steps));
        return bench::number_after(text, "ms_per_step");
      };
      auto const own = "'" + bench::this_program() + "' --only ";
      ms[products].push_back(measure(own + Net::name + " --products " + products));
      if (peer)
        ms["torch " + products].push_back(measure(bench::python() + " '" + bench::script("products_peer.py") + "' " +
                                                  Net::name + " " + products + " --rows " + std::to_string(Net::rows) +
                                                  " --threads " + std::to_string(Cpu{}.threads())));
    }
  for (auto const products : {Products::f32, Products::bf16}) {
    auto runtime      = onednn::Runtime{};
    runtime.rounds_to = products;
    auto const name   = std::string{products == Products::f32 ? "f32" : "bf16"};
    auto const ours   = bench::median(ms[name]);
    auto row          = bench::Row{std::string{"products/"} + Net::name};
    row.add("products", name)
        .add("rows", Net::rows, "%.0f")
        .add("ms_per_step", ours)
        .add("multiplying_ms", Net::work * Net::rows / fastest_product(runtime) / 1e6)
        .add("faster_than_f32", bench::median(ms["f32"]) / ours, "%.2f");
    if (peer) {
      auto const theirs = bench::median(ms["torch " + name]);
      row.add("torch_ms_per_step", theirs).add("speedup", theirs / ours, "%.2f");
    }
    row.add_to_json("onednn", onednn::version()).print(options.json);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags   = CLI::App{"Milliseconds of a training step with products in float, and in bf16."};
  auto options = Options{};
  auto only = std::string{}, products = std::string{"f32"};
  flags.add_flag("--json", options.json, "one JSON object a line");
  flags.add_option("--rounds", options.rounds, "of every contender in turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags.add_option("--steps", options.steps, "of a contender in a round")
      ->check(CLI::Range(4, 1'000'000))
      ->capture_default_str();
  flags.add_option("--only", only, "measure one network and print ms_per_step")
      ->check(CLI::IsMember({Mlp::name, Convolutions::name}));
  flags.add_option("--products", products, "for --only")->check(CLI::IsMember({"f32", "bf16"}));
  CLI11_PARSE(flags, argc, argv);
  if (only.empty()) {
    if (!options.json)
      std::printf("%s; %s; %d rounds in turn, medians\n", bench::machine().c_str(), onednn::version().c_str(),
                  options.rounds);
    auto const peer = bench::has_torch();
    report<Mlp>(options, peer);
    report<Convolutions>(options, peer);
    return 0;
  }
  auto const measure = [&]<class Net>(Net const*) {
    return products == "f32" ? step_ms<Net>(options.steps)
                             : step_ms<nn::WithProducts<Net, Products::bf16>>(options.steps);
  };
  std::printf("ms_per_step %.4f\n",
              only == Mlp::name ? measure(static_cast<Mlp*>(nullptr)) : measure(static_cast<Convolutions*>(nullptr)));
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
