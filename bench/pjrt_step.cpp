// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds of a training step on one device of a PJRT plug-in, beside jax.jit of the same model on the same
// plug-in.
//
//   CHORALE_PJRT_PLUGIN=libpjrt_cpu.so tools/run bench/pjrt_step --json
//
// LeNet and the small GPT of bench/models, each with Adam. A step is one program, which begins with a batch of the host
// and ends with an update. The peer needs an interpreter with jax, which CHORALE_PYTHON names, else python3. Both take
// turns, some rounds; medians. Without a plug-in there is nothing to measure.
#include "support/asked.hpp"
#include "support/models_nets.hpp"
#include "support/report.hpp"

#include <chorale/chorale.hpp>
#include <chorale/pjrt/pjrt.hpp>

#include <CLI/CLI.hpp>

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
void measure(Options const& o, std::string const& name, auto& copy, auto const& batch,
             std::optional<bench::Asked>& peer) {
  auto ours = std::vector<double>{}, theirs = std::vector<double>{};
  step_ms(copy, batch, 3);  // compiles
  for (int round = 0; round < o.rounds; ++round) {
    ours.push_back(step_ms(copy, batch, o.steps));
    if (!peer) continue;
    auto const answer = peer->ask(name + " " + std::to_string(batch.rows) + " " + std::to_string(o.steps));
    if (!answer.starts_with("us ")) throw std::runtime_error{"chorale: the peer says: " + answer};
    theirs.push_back(bench::number_after(answer, "us") / 1e3);
  }
  auto row = bench::Row{"pjrt_step/" + name};
  row.add("rows", static_cast<double>(batch.rows)).add("ms", bench::median(ours));
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
  } catch (std::exception const& error) { std::fprintf(stderr, "SKIPPED: JAX: %s\n", error.what()); }
  if (!o.json)
    std::printf("%s; %s; %d rounds in turn, medians\n", bench::machine().c_str(),
                peer ? peer->ready().c_str() : "without JAX", o.rounds);

  using namespace bench::models;
  auto const digits = LeNet{};
  auto lenet        = nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(device, 1);
  measure(o, "lenet", lenet, digits.part(0, 1), peer);

  auto const text = ids(CharacterGpt::batch * Text::size, 65, 0), next = ids(text.size(), 65, 1);
  auto gpt = nn::compile<CharacterGpt>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(device, 1);
  measure(o, "gpt", gpt, Rows<Text, Next>{Span<int const>{text}, Span<int const>{next}}, peer);
  return 0;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
