// SPDX-License-Identifier: Apache-2.0
//
// A training step of GPT-2 124M whose state is divided among ranks, over the step of as many mirrored replicas.
//
//   CHORALE_PYTHON=interpreter tools/run bench/sharded --json
//
//   mirrored         MultiWorkerMirroredStrategy
//   zero1 .. zero3   ShardedStrategy: the optimizer's state; and gradients; and variables, gathered layer by layer
//   tensor           MeshStrategy over Axis<"tensor", n>: columns and rows of all matrices, heads, and the vocabulary, which
//                    is of 50,304 words then, as one that divides must be; `mirrored_50304` is the same, not split
//   pipeline         MeshStrategy over Axis<"stage", n>, OneForwardOneBackward<4>
//   fsdp2            PyTorch's fully_shard of each block and of the whole, gloo
//
// Ranks are processes of one thread, each on a core while there are enough, over shared memory, RingAllReduce. All forms
// learn from 4 rows of 64 words in a step. Forms in turn, several rounds; medians of the slowest rank. `megabytes` is by
// how much a process has grown at the most, on the rank where it is most. `ratio` is over the mirrored step of the same
// ranks and words. Of the pipeline, `stage_i_ms` is what stage i takes for all micro-batches and its update if it waits for
// nobody, while the other stages do the same; `idle` is the part of all ranks' time that is left, and `idle_predicted` is
// (n - 1) / (4 + n - 1), which holds for stages that take equally long, and no time for messages or the update.
#include "support/asked.hpp"
#include "support/models_nets.hpp"
#include "support/ranks.hpp"
#include "support/report.hpp"

#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp/address.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using bench::models::Next;
using bench::models::Text;

namespace {

/// The sizes of a GPT.
template <int Words, int Width, int Heads, int Blocks> struct Sizes {
  static constexpr int words = Words, width = Width, heads = Heads, blocks = Blocks;
};
using Gpt2       = Sizes<50'257, 768, 12, 12>;
using Gpt2Padded = Sizes<50'304, 768, 12, 12>;
using Small      = Sizes<68, 16, 4, 2>;

template <class S> struct Block {
  nn::LayerNorm norm, norm_2;
  nn::Dense<3 * S::width> queries_keys_values;
  nn::Dense<S::width> mixed, narrow;
  nn::Dense<4 * S::width> wide;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(nn::CausalHeads<S::heads>{}(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu_tanh(wide(norm_2(y))));
  }
};
template <class S> struct Gpt : nn::Graph<Text> {
  nn::Embedding<S::words, S::width> words;
  nn::Positions<1'024, S::width> places;
  std::array<Block<S>, S::blocks> blocks;
  nn::LayerNorm last;

  constexpr auto operator()(auto text) const {
    auto x = places(words(text));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(words.logits(last(x)));
  }
};

template <class S, class A> struct SplitBlock {
  nn::LayerNorm norm, norm_2;
  nn::ColumnDense<A, 3 * S::width, nn::Blocks<3>> queries_keys_values;
  nn::ColumnHeads<A, S::heads, nn::Causal> attend;
  nn::RowDense<A, S::width> mixed, narrow;
  nn::ColumnDense<A, 4 * S::width> wide;

  constexpr auto operator()(auto x) const {
    auto const y = x + mixed(attend(queries_keys_values(norm(x))));
    return y + narrow(nn::gelu_tanh(wide(norm_2(y))));
  }
};
template <class S, class A> struct SplitGpt : nn::Graph<Text> {
  nn::SplitEmbedding<A, S::words, S::width> words;
  nn::Positions<1'024, S::width> places;
  std::array<SplitBlock<S, A>, S::blocks> blocks;
  nn::LayerNorm last;

  constexpr auto operator()(auto text) const {
    auto x = places(words(text));
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(words.logits(last(x)));
  }
};

auto const rule = optim::AdamW{.learning_rate = 1e-4F, .weight_decay = 0.01F, .epsilon = 1e-8F};

template <class S> auto gpt() { return nn::compile<Gpt<S>>(loss::SparseCrossEntropy{}, rule); }
template <class S, int n> auto split_gpt() {
  using Tensor = Axis<"tensor", n>;
  return nn::compile<SplitGpt<S, Tensor>>(loss::SplitSparseCrossEntropy<Tensor>{}, rule);
}

/// What one rank has measured.
///
/// alone_ms   what it takes if it waits for no other stage; 0: it is no stage
struct Measured {
  double ms = 0, megabytes = 0, alone_ms = 0;
};

/// Messages that are over at once: what a stage receives is what came last.
struct NoMessages final : pipelines::Messages {
  std::size_t send(int, std::uint32_t, ConstBytes) override { return 0; }
  std::size_t receive(int, std::uint32_t, Bytes) override { return 0; }
  void wait(std::size_t) override {}
  void wait_all() override {}
  void go_on() override {}
};

/// Megabytes of a process: VmRSS are now in memory, VmHWM at the most so far.
double megabytes(std::string const& which) {
  auto file = std::ifstream{"/proc/self/status"};
  for (auto line = std::string{}; std::getline(file, line);)
    if (line.starts_with(which + ":")) return std::stod(line.substr(which.size() + 1)) / 1024;
  return 0;
}

/// Steps of one rank, over the 4 rows of all, or over its share of them.
template <class Model, class S> Measured measure(Model const& model, S strategy, int words, int steps) {
  auto const before = megabytes("VmRSS");
  auto const text = bench::models::ids(4 * 64, words, 0), next = bench::models::ids(4 * 64, words, 1);
  auto live        = Live{std::move(strategy), RingAllReduce{}, with_plan(SharedMemoryTransport{}, model.plan)};
  auto copies      = live.create(model, 1);
  auto const share = live.share_of(live.local_replica(0).id()), shares = live.num_shares();
  auto batch        = PerReplica{std::vector{Rows<Text, Next>{text, next}.part(share, shares)}};
  auto const median = [&](auto&& step) {
    auto times = std::vector<double>{};
    for (int i = -1; i < steps; ++i) {
      auto const start = std::chrono::steady_clock::now();
      live.run(step, copies, batch);
      if (i >= 0) times.push_back(1e3 * bench::seconds_since(start));
    }
    return bench::median(times);
  };
  auto made = Measured{.ms        = median([&](auto& replica, auto& copy, auto const& rows) {
                         auto result = replica.value_and_gradient_ahead(copy, rows);
                         live.update(replica, copy, result.gradients);
                       }),
                       .megabytes = megabytes("VmHWM") - before};
  if constexpr (StrategyTraits<S>::has_stages) {
    auto none     = NoMessages{};
    made.alone_ms = median([&](auto& replica, auto& copy, auto const& rows) {
      copy.learner().join(&none);
      copy.value_and_gradient(rows, 0, LooksAtEnd{});
      auto gradients = copy.gradients();
      copy.learner().share_ties(gradients);
      copy.optimizer.apply(copy.net.variables(), gradients);
      copy.learner().join(&replica.messages());
    });
  }
  return made;
}

std::vector<std::string> const forms{"mirrored", "zero1", "zero2", "zero3", "mirrored_50304", "tensor", "pipeline"};

template <class S, class Padded, int n>
Measured measure_mesh(std::string const& form, Cluster const& cluster, std::vector<Cpu> const& device, int steps) {
  if (form == "tensor")
    return measure(split_gpt<Padded, n>(), MeshStrategy{Mesh<Axis<"tensor", n>>{cluster, device}}, Padded::words,
                   steps);
  return measure(gpt<S>(), MeshStrategy{Mesh<Axis<"stage", n>>{cluster, device}, pipelined<OneForwardOneBackward<4>>()},
                 S::words, steps);
}

template <class S, class Padded>
Measured measure_form(std::string const& form, Cluster const& cluster, int ranks, int steps) {
  auto const device = Cpu::logical(1);
  if (form == "mirrored") return measure(gpt<S>(), MultiWorkerMirroredStrategy{cluster, device}, S::words, steps);
  if (form == "mirrored_50304")
    return measure(gpt<Padded>(), MultiWorkerMirroredStrategy{cluster, device}, Padded::words, steps);
  if (form == "zero1") return measure(gpt<S>(), ShardedStrategy<Zero::one>{cluster, device}, S::words, steps);
  if (form == "zero2") return measure(gpt<S>(), ShardedStrategy<Zero::two>{cluster, device}, S::words, steps);
  if (form == "zero3") return measure(gpt<S>(), ShardedStrategy<Zero::three>{cluster, device}, S::words, steps);
  if (ranks == 2) return measure_mesh<S, Padded, 2>(form, cluster, device, steps);
  throw BadArgument{"tensor and pipeline are measured with 2 ranks, got " + std::to_string(ranks) + ".", "--ranks 2"};
}

/// Runs a form on processes: what each rank has measured.
std::vector<Measured> on_ranks(std::string const& form, int ranks, int steps, bool quick) {
  auto const addresses = free_loopback_addresses(ranks);
  auto const shared    = bench::SharedBytes{static_cast<std::size_t>(ranks) * sizeof(Measured)};
  bench::run_processes(ranks, [&](int rank) {
    bench::pin(rank, ranks);
    auto const cluster =
        Cluster::at({.workers = addresses, .me = {Role::worker, rank}, .job = "bench-" + addresses[0]});
    shared.as<Measured>()[rank] = quick ? measure_form<Small, Small>(form, cluster, ranks, steps)
                                        : measure_form<Gpt2, Gpt2Padded>(form, cluster, ranks, steps);
  });
  return {shared.as<Measured>(), shared.as<Measured>() + ranks};
}
/// The slowest rank's milliseconds, and the most megabytes.
Measured worst_of(std::vector<Measured> const& all) {
  auto worst = Measured{};
  for (auto const& one : all)
    worst = {.ms = std::max(worst.ms, one.ms), .megabytes = std::max(worst.megabytes, one.megabytes)};
  return worst;
}

/// PyTorch's FSDP2 on as many processes; empty if the interpreter has none that works.
std::vector<Measured> of_fsdp2(int ranks, int steps, int rounds) {
  auto all = std::vector<Measured>{};
  try {
    for (int round = 0; round < rounds; ++round) {
      auto const said = bench::output_of(bench::python() + " '" + bench::script("sharded_torch_peer.py") +
                                         "' --ranks " + std::to_string(ranks) + " --steps " + std::to_string(steps));
      all.push_back({bench::number_after(said, "ms_per_step"), bench::number_after(said, "megabytes")});
    }
  } catch (std::exception const& error) {
    auto const text = std::string{error.what()};
    std::fprintf(stderr, "SKIPPED: FSDP2: %s\n",
                 text.substr(text.size() - std::min<std::size_t>(text.size(), 300)).c_str());
    all.clear();
  }
  return all;
}

struct Options {
  bool json = false, quick = false;
  int rounds = 3, steps = 3;
  std::vector<int> ranks{2, 4};
  std::vector<std::string> only;
};

void report(int ranks, Options const& o) {
  auto measured    = std::map<std::string, std::vector<Measured>>{};
  auto alone       = std::vector<std::vector<double>>(static_cast<std::size_t>(ranks));  // of each stage
  auto const asked = [&](std::string const& form) {
    auto const mesh = form == "tensor" || form == "pipeline" || form == "mirrored_50304";
    return (!mesh || ranks == 2) && (o.only.empty() || std::ranges::count(o.only, form) != 0);
  };
  for (int round = 0; round < o.rounds; ++round) {
    for (auto const& form : forms) {
      if (!asked(form)) continue;
      auto const all = on_ranks(form, ranks, o.steps, o.quick);
      measured[form].push_back(worst_of(all));
      for (std::size_t i = 0; i < all.size() && form == "pipeline"; ++i) alone[i].push_back(all[i].alone_ms);
    }
    if (!o.quick && ranks == 2 && (o.only.empty() || std::ranges::count(o.only, "fsdp2") != 0))
      for (auto const& one : of_fsdp2(ranks, o.steps, 1)) measured["fsdp2"].push_back(one);
  }
  auto const median_of = [&](std::string const& form, double Measured::* what) {
    auto values = std::vector<double>{};
    for (auto const& one : measured.at(form)) values.push_back(one.*what);
    return bench::median(values);
  };
  for (auto const& [form, all] : measured) {
    auto const ms    = median_of(form, &Measured::ms);
    auto const other = form == "tensor" ? "mirrored_50304" : "mirrored";
    auto row         = bench::Row{(o.quick ? "sharded_quick/" : "sharded/") + form};
    row.add("ranks", ranks, "%.0f").add("ms", ms).add("megabytes", median_of(form, &Measured::megabytes), "%.0f");
    if (measured.contains(other))
      row.add("mirrored_ms", median_of(other, &Measured::ms))
          .add("ratio", ms / median_of(other, &Measured::ms), "%.2f");
    if (form == "pipeline") {
      auto busy = 0.0;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        row.add("stage_" + std::to_string(i) + "_ms", bench::median(alone[i]));
        busy += bench::median(alone[i]);
      }
      row.add("idle", 1 - busy / (ranks * ms), "%.3f").add("idle_predicted", (ranks - 1.0) / (4 + ranks - 1), "%.3f");
    }
    row.print(o.json);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags = CLI::App{"A training step of GPT-2 124M whose state is divided among ranks."};
  auto o     = Options{};
  flags.add_flag("--json", o.json, "one JSON object a line");
  flags.add_flag("--quick", o.quick, "a small network, without PyTorch: to see that the program runs");
  flags.add_option("--rounds", o.rounds, "of every form in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--steps", o.steps, "of a form in a round")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--ranks", o.ranks, "numbers of ranks")->check(CLI::Range(1, 8))->capture_default_str();
  flags.add_option("--forms", o.only, "names of the forms, fsdp2 too; without it all");
  CLI11_PARSE(flags, argc, argv);
  if (!o.json) std::printf("%s; %d rounds in turn, medians\n", bench::machine().c_str(), o.rounds);
  for (auto const ranks : o.ranks) report(ranks, o);
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
