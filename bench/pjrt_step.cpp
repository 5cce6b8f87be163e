// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds of a training step on one device of a PJRT plug-in, beside jax.jit of the same model on the same plug-in.
//
//   CHORALE_PJRT_PLUGIN=libpjrt_cpu.so tools/run bench/pjrt_step --json
//
// LeNet of the examples with 64 rows, and a GPT of 4 blocks, 4 heads, 128 wide over 64 characters with 12 rows, each
// with Adam. A step is one program, which begins with a batch of the host and ends with an update. The peer needs an
// interpreter with jax, which CHORALE_PYTHON names, else python3. Both take turns, some rounds; medians. Without a plug-in
// there is nothing to measure.
#include "support/asked.hpp"
#include "support/report.hpp"

#include <chorale/device/pjrt.hpp>
#include <chorale/nn/attention.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/conv2d.hpp>
#include <chorale/nn/dense.hpp>
#include <chorale/nn/embedding.hpp>
#include <chorale/nn/layer_norm.hpp>
#include <chorale/nn/loss.hpp>
#include <chorale/nn/pjrt.hpp>
#include <chorale/nn/pool2d.hpp>
#include <chorale/nn/sequential.hpp>
#include <chorale/optim/adam.hpp>

#include <CLI/CLI.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                              nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};

constexpr int characters = 96, text_length = 64, vector_size = 128, num_heads = 4;

struct Text : Field<int, text_length> {};
struct Next : Field<int, text_length> {};

struct Block {
  nn::LayerNorm norm, norm_2;
  nn::Dense<3 * vector_size> queries_keys_values;
  nn::Dense<4 * vector_size> wide;
  nn::Dense<vector_size> mixed, narrow;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(nn::CausalHeads<num_heads>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu(wide(norm_2(y))));
  }
};

struct Gpt : nn::Graph<Text> {
  nn::Embedding<characters, vector_size> table;
  nn::Positions<text_length, vector_size> positions;
  std::array<Block, 4> blocks;
  nn::LayerNorm last;

  constexpr auto operator()(auto text) const {
    auto x = positions(table(text));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(table.logits(last(x)));
  }
};

/// Milliseconds a step of so many, which are waited for at the end, as the peer's are.
double step_ms(auto& copy, auto const& batch, int steps) {
  auto const start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) copy.step_ahead(batch);
  copy.finish_ahead();
  return 1e3 * bench::seconds_since(start) / steps;
}

struct Options {
  bool json  = false;
  int rounds = 5, steps = 20;
};

/// Measures one network in turn with the peer, and prints a line.
void measure(Options const& o, std::string const& name, auto& copy, auto const& batch, std::optional<bench::Asked>& peer) {
  auto ours = std::vector<double>{}, theirs = std::vector<double>{};
  step_ms(copy, batch, 3);                                                 // compiles
  for (int round = 0; round < o.rounds; ++round) {
    ours.push_back(step_ms(copy, batch, o.steps));
    if (!peer) continue;
    auto const answer = peer->ask(name + " " + std::to_string(batch.rows) + " " + std::to_string(o.steps));
    if (!answer.starts_with("us ")) throw std::runtime_error{"chorale: the peer says: " + answer};
    theirs.push_back(bench::number_after(answer, "us") / 1e3);
  }
  auto row = bench::Row{"pjrt " + name + " " + std::to_string(batch.rows)};
  row.add("ms", bench::median(ours));
  if (peer) row.add("jax_ms", bench::median(theirs)).add("ratio", bench::median(ours) / bench::median(theirs));
  row.print(o.json);
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"Milliseconds of a training step on one PJRT device."};
  auto o     = Options{};
  flags.add_flag("--json", o.json, "one JSON object a line");
  flags.add_option("--rounds", o.rounds, "of each in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--steps", o.steps, "of each in a round")->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(flags, argc, argv);
  if (auto const why = Pjrt::missing(); !why.empty()) {
    std::fprintf(stderr, "SKIPPED: %s\n", why.c_str());
    return 0;
  }
  auto const path   = pjrt::Plugin::path_from_environment();
  auto const device = Pjrt::open(path).first(1);
  auto peer         = std::optional<bench::Asked>{};
  try {
    peer.emplace(bench::python() + " '" + bench::script("pjrt_peer.py") + "' '" + path + "'");
  } catch (std::exception const& error) {
    std::fprintf(stderr, "SKIPPED: JAX: %s\n", error.what());
  }
  if (!o.json)
    std::printf("%s; %s; %d rounds in turn, medians\n", bench::machine().c_str(),
                peer ? peer->ready().c_str() : "without JAX", o.rounds);

  constexpr std::size_t images = 64, texts = 12;
  auto x = std::vector<float>(images * 784);
  auto y = std::vector<int>(images);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{5, 0}.uniform(i);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int>(Random{5, 1}.below(i, 10));
  auto lenet = nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(device, 1);
  measure(o, "lenet", lenet, BasicBatch<float, int>{.x = x, .y = y, .rows = images}, peer);

  auto text = std::vector<int>(texts * text_length), next = text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<int>(Random{6, 0}.below(i, characters));
    next[i] = static_cast<int>(Random{6, 1}.below(i, characters));
  }
  auto gpt = nn::compile<Gpt>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(device, 1);
  measure(o, "gpt", gpt, Rows<Text, Next>{Span<int const>{text}, Span<int const>{next}}, peer);
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
