// SPDX-License-Identifier: Apache-2.0
//
// Images per second of the CNN in training, beside the same network written by hand on oneDNN and beside libtorch.
//
//   tools/run bench/training --json
//
// Batch 64, Adam, float32. Each contender runs in a process of its own, in turn, several rounds; medians are printed.
// One thread: one replica on one core. Two: two replicas of one core each under MirroredStrategy; the others use two
// threads. "compared" is chorale that compares the bits of its replicas in every step instead of every 100th: the pass
// over their variables should be all that this adds. The libtorch columns need Debian's libtorch-dev, and
// libopenblas0-pthread, without which libtorch runs on the reference BLAS at a third of its speed; libtcmalloc-minimal4
// helps it too. Without libtorch the program says so and leaves it out.
#include "support/hand_onednn.hpp"
#include "support/libtorch_cnn.hpp"
#include "support/report.hpp"

#include <chorale/chorale.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>

using namespace chorale;

namespace {

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                              nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};

constexpr std::size_t rows = 64, batches = 16;

struct Images {
  std::vector<float> x = std::vector<float>(batches * rows * 784);  // (16 · 64, 28, 28, 1)
  std::vector<int> y   = std::vector<int>(batches * rows);          // (16 · 64)

  Images() {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{1, 0}.uniform(i);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int>(Random{1, 1}.below(i, 10));
  }
  float const* x_of(std::size_t step) const { return x.data() + step % batches * rows * 784; }
  int const* y_of(std::size_t step) const { return y.data() + step % batches * rows; }
};

/// Milliseconds per step: the median over blocks of 25 steps, after two blocks of warm-up.
template <class Step> double ms_per_step(Step&& step) {
  auto blocks = std::vector<double>{};
  for (std::size_t block = 0, i = 0; block < 12; ++block) {
    auto const start = std::chrono::steady_clock::now();
    for (int k = 0; k < 25; ++k) step(i++);
    auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (block >= 2) blocks.push_back(seconds / 25 * 1e3);
  }
  return bench::median(blocks);
}

/// A dataset that stops the clock: its stream is asked for a batch at the start of every step.
struct Clocked {
  using element = Batch;
  Images const* images;
  std::vector<double>* blocks;

  struct Stream {
    Clocked const* from;
    std::size_t step = 0;
    std::chrono::steady_clock::time_point start{};

    bool next(Batch& batch) {
      if (step % 25 == 0) {
        auto const now = std::chrono::steady_clock::now();
        if (step >= 75) from->blocks->push_back(std::chrono::duration<double>(now - start).count() / 25 * 1e3);
        start = now;
      }
      if (step == 300) return false;
      batch = {.x = {from->images->x_of(step), rows * 784}, .y = {from->images->y_of(step), rows}, .rows = rows};
      ++step;
      return true;
    }
  };
  Stream stream(std::size_t) const { return {this}; }
  std::optional<std::size_t> size() const { return 300; }
};

double chorale_ms(int threads, int compare_every) {
  auto const images = Images{};
  auto blocks       = std::vector<double>{};
  auto cores        = Cpu{}.cores();
  auto devices      = std::vector<Cpu>{};
  for (int i = 0; i < threads; ++i) devices.push_back(Cpu{std::vector<int>{cores.at(static_cast<std::size_t>(i))}});
  auto trainer = Trainer{nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                         MirroredStrategy{devices}, DirectAllReduce{}, LocalTransport{}, 1};
  trainer.fit(Clocked{&images, &blocks}, {.show = Show::nothing, .compare_every = compare_every});
  return bench::median(blocks);
}

/// Milliseconds of a hash of the network's variables, which lie in a cache as they do in a step.
double hash_ms() {
  auto const copy = nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(Cpu{}, 1);
  auto sum        = std::uint64_t{0};
  auto const ms   = ms_per_step([&](std::size_t) { sum += copy.hash(); });
  if (sum == 0) throw std::logic_error{"a hash of 0"};
  return ms;
}

double by_hand_ms(int threads) {
  omp_set_num_threads(threads);
  auto const images = Images{};
  auto net          = bench::HandOneDnn{static_cast<int>(rows), threads};
  return ms_per_step([&](std::size_t i) { net.step(images.x_of(i), images.y_of(i)); });
}

double measure(std::string const& who, int threads) {
  if (who == "chorale") return chorale_ms(threads, FitOptions{}.compare_every);
  if (who == "compared") return chorale_ms(threads, 1);
  if (who == "by_hand") return by_hand_ms(threads);
#ifdef CHORALE_HAVE_LIBTORCH
  using Peer = bench::LibtorchCnn;
  auto peer  = Peer{who == "libtorch_tuned" ? Peer::Mode::tuned : Peer::Mode::as_written, threads};
  return ms_per_step([&](std::size_t) { peer.step(); });
#else
  throw BadArgument{"--only " + who + " needs libtorch, which was absent when this was built.",
                    "apt-get install libtorch-dev"};
#endif
}

/// What tuning puts into the environment: kernels for this processor, which OpenBLAS does not pick for every AVX-512
/// machine, and the allocator that suits libtorch best, when it is installed.
std::string environment_of(std::string const& who) {
  if (who != "libtorch_tuned") return "";
  auto text = std::string{};
  if (__builtin_cpu_supports("avx512f")) text += "OPENBLAS_CORETYPE=SkylakeX ";
  for (auto const* folder : {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/"})
    if (auto const file = std::string{folder} + "libtcmalloc_minimal.so.4"; std::filesystem::exists(file))
      text += "LD_PRELOAD=" + file + " ";
  return text;
}

void report(bool json, int rounds) {
  auto contenders = std::vector<std::string>{"chorale", "by_hand"};
#ifdef CHORALE_HAVE_LIBTORCH
  contenders.insert(contenders.end(), {"libtorch_tuned", "libtorch_as_written"});
#else
  std::fprintf(stderr,
               "SKIPPED: libtorch: it was absent when this was built. "
               "Try: apt-get install libtorch-dev libopenblas0-pthread libtcmalloc-minimal4\n");
#endif
  if (!json)
    std::printf("%s; %s; CNN, batch %zu, Adam; %d rounds in turn, medians\n", bench::machine().c_str(),
                onednn::version().c_str(), rows, rounds);
  for (int threads = 1; threads <= std::min(2, static_cast<int>(Cpu{}.cores().size())); ++threads) {
    auto ms = std::map<std::string, std::vector<double>>{};
    if (threads == 2) contenders.push_back("compared");
    for (int round = 0; round < rounds; ++round)
      for (auto const& who : contenders)
        ms[who].push_back(
            bench::number_after(bench::output_of(environment_of(who) + "'" + bench::this_program() + "' --only " + who +
                                                 " --threads " + std::to_string(threads)),
                                "ms_per_step"));
    auto const ours = bench::median(ms["chorale"]);
    for (auto const& who : contenders) {
      auto const theirs = bench::median(ms[who]);
      auto row          = bench::Row{"training/" + who};
      row.add("threads", threads, "%.0f").add("ms_per_step", theirs).add("images_per_s", rows / theirs * 1e3, "%.0f");
      if (who == "compared") row.add("predicted_ms", ours + hash_ms()).add("of_chorale", theirs / ours);
      else if (who != "chorale") row.add("chorale_is_faster_by", theirs / ours, "%.2f");
      if (who == "by_hand") row.add("to_reach", 0.9, "%.1f");
      if (who == "libtorch_tuned") row.add("to_reach", 5.0, "%.1f");
      row.add_to_json("onednn", onednn::version()).print(json);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  auto flags  = CLI::App{"Images per second of the CNN in training, beside oneDNN by hand and libtorch."};
  auto only   = std::string{};
  int threads = 1, rounds = 5;
  bool json = false;
  flags.add_flag("--json", json, "one JSON object a line");
  flags.add_option("--rounds", rounds, "of every contender in turn")->check(CLI::PositiveNumber)->capture_default_str();
  flags.add_option("--only", only, "measure one contender and print ms_per_step")
      ->check(CLI::IsMember({"chorale", "compared", "by_hand", "libtorch_tuned", "libtorch_as_written"}));
  flags.add_option("--threads", threads, "for --only")->check(CLI::Range(1, 2));
  CLI11_PARSE(flags, argc, argv);
  if (only.empty()) report(json, rounds);
  else std::printf("ms_per_step %.4f\n", measure(only, threads));
  return 0;
} catch (std::exception const& error) {
  std::cerr << error.what() << '\n';
  return chorale::exit_code(error);
}
