// SPDX-License-Identifier: Apache-2.0
//
// Training steps on a GPU beside those of PyTorch and beside their floor, and an all-reduce of one rank beside NCCL's
// own. tools/gpu builds it; it is started in the folder of the sources.
//
//   cuda_bench [--json] [--rounds N]
//
// The peer is PyTorch on the same GPU: eager, under torch.compile with CUDA graphs, and compiled in one CUDA graph with
// its update. It needs an interpreter with torch, which CHORALE_PYTHON names, else python3. All take turns, some
// rounds; medians. The floor of a step is the bytes that its layers move at least, one by one, at the speed of a copy on
// the same device, or its products at 60e12 operations a second in float, without tensor cores, or 790e12 in bf16; the
// larger of the two.
#include "bench/support/asked.hpp"
#include "bench/support/report.hpp"

#include <chorale/data/stages/batch.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/networks/resnet.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/tensor/cuda/all.hpp>
#include <chorale/transport/nccl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

struct Cnn : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                            nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};
struct Mlp : nn::Sequential<nn::Input<784>, nn::Dense<4096>, nn::ReLU, nn::Dense<4096>, nn::ReLU, nn::Dense<10>> {};
/// A block of ResNet-50 around which its input goes, behind a narrow convolution that makes that input.
template <int Side, int Width>
struct Block : nn::Sequential<nn::Input<Side, Side, 8>, nn::resnet::Conv<4 * Width, 1>, nn::ReLU,
                              nn::resnet::Bottleneck<Width>, nn::AveragePool2D<Side>, nn::Flatten, nn::Dense<10>> {};

struct Options {
  bool json  = false;
  int rounds = 5;
};

/// What all that is measured here shares.
struct Bench {
  Options options;
  Cuda gpu;
  double copied = 0;  // bytes a second
  std::optional<bench::Asked> peer{};
};

/// Seconds that each of `n` calls took.
template <class F> double seconds(int n, F f) {
  auto const begin = std::chrono::steady_clock::now();
  for (int i = 0; i < n; ++i) f();
  return bench::seconds_since(begin) / n;
}

/// Bytes a second that a copy on the device reads and writes.
double copy_speed() {
  constexpr auto bytes = std::size_t{256} << 20;
  auto from = cuda::Room{}, to = cuda::Room{};
  auto* const a   = from.take(bytes);
  auto* const b   = to.take(bytes);
  auto const copy = [&] {
    cuda::expect(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, cuda::queue()), "cudaMemcpyAsync");
    cuda::expect(cudaStreamSynchronize(cuda::queue()), "cudaStreamSynchronize");
  };
  seconds(3, copy);
  return 2 * static_cast<double>(bytes) / seconds(20, copy);
}

/// Steps of ours on the device: its batch lies there, its labels on the host.
template <class Net, class P> class Ours {
 public:
  Ours(Cuda const& gpu, std::size_t rows) : copy_{model().instantiate(gpu, 1)}, y_(rows, 3) {
    auto x = std::vector<float>(rows * Net::input::size);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{5, 0}.uniform(i);
    x_ = {room_.fetch(x.data(), x.size()), x.size()};
    gpu.synchronize();
    seconds_of(10);
  }

  /// Seconds a step of so many, which are waited for at the end, as the peer's are.
  double seconds_of(int steps) {
    auto const begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) copy_.step_ahead(BasicBatch<float, int>{.x = x_, .y = y_, .rows = y_.size()});
    copy_.finish_ahead();
    return bench::seconds_since(begin) / steps;
  }

  std::size_t nodes() const { return copy_.nodes(y_.size()); }

 private:
  static auto model() { return nn::compile<Net, P>(loss::SparseCrossEntropy{}, optim::Adam{}); }

  decltype(model().instantiate(std::declval<Cuda>(), 1)) copy_;
  cuda::Room room_;
  Span<float const> x_;
  std::vector<int> y_;
};

/// name    of the network, as bench/support/cuda_peer.py knows it
template <class Net, class P = nn::Precision<float>>
void step(Bench& all, std::string const& name, std::size_t rows, int steps) {
  constexpr bool halves = P::activations != Elements::f32;
  auto const what       = name + " " + std::to_string(rows);
  auto launched = Ours<Net, P>{all.gpu, rows}, replayed = Ours<Net, P>{all.gpu.replaying(), rows};
  auto took = std::map<std::string, std::vector<double>>{};
  for (int round = 0; round < all.options.rounds; ++round) {
    took["launched"].push_back(launched.seconds_of(steps));
    took["replayed"].push_back(replayed.seconds_of(steps));
    for (std::string const mode : {"eager", "compiled", "graph"}) {
      if (!all.peer) continue;
      auto const answer = all.peer->ask(what + " " + mode + " " + std::to_string(steps));
      if (answer.starts_with("us ")) took[mode].push_back(bench::number_after(answer, "us") / 1e6);
      else if (round == 0) std::printf("SKIPPED: %s, PyTorch %s: %s\n", what.c_str(), mode.c_str(), answer.c_str());
    }
  }
  auto const median  = [&](std::string const& mode) { return bench::median(took.at(mode)); };
  auto const ours    = std::min(median("launched"), median("replayed"));
  // Adam reads w, g, m, v and writes w, m, v; backward writes g. Each of y and dy is written and read once.
  auto const weights = 8 * 4 * static_cast<double>(Net::plan.elements);
  auto const between = 4 * (halves ? 2 : 4) * static_cast<double>(rows * Net::plan.activations_per_row);
  auto const work    = 6 * static_cast<double>(rows * Net::plan.products_per_row) / (halves ? 790e12 : 60e12);
  auto const floor   = std::max((weights + between) / all.copied, work);
  auto row           = bench::Row{what + (halves ? ", bf16" : "")};
  for (auto const& [mode, times] : took) row.add(mode + "_us", bench::median(times) * 1e6);
  row.add("floor_us", floor * 1e6)
      .add("over_floor", ours / floor)
      .add("mb_moved", (weights + between) / 1e6)
      .add("nodes", static_cast<double>(replayed.nodes()));  // kernels and copies of a step, but for Adam
  if (took.contains("eager")) row.add("times_eager", median("eager") / ours);
  auto best = 0.0;
  for (auto const* const mode : {"compiled", "graph"})
    if (took.contains(mode)) best = best == 0 ? median(mode) : std::min(best, median(mode));
  if (best > 0) row.add("times_compiled", best / ours);
  row.print(all.options.json);
}

void reduce(Bench& all, std::size_t n) {
  auto endpoints  = NcclTransport<>{.devices = {all.gpu}}.connect(Group::all_local(1));
  auto room       = cuda::Room{};
  auto const x    = Span<float>{static_cast<float*>(room.take(n * sizeof(float))), n};
  auto const ours = [&] { endpoints[0].all_reduce(x, Op::sum); };
  auto raw        = ncclComm_t{};
  int device      = all.gpu.index();
  nccl::expect_nccl(ncclCommInitAll(&raw, 1, &device), "ncclCommInitAll");
  auto const theirs = [&] {
    nccl::expect_nccl(ncclAllReduce(x.data(), x.data(), n, ncclFloat, ncclSum, raw, cuda::queue()), "ncclAllReduce");
    cuda::expect(cudaStreamSynchronize(cuda::queue()), "cudaStreamSynchronize");
  };
  seconds(20, ours), seconds(20, theirs);
  auto a = std::vector<double>{}, b = a;
  for (int round = 0; round < all.options.rounds; ++round) {
    a.push_back(seconds(200, ours));
    b.push_back(seconds(200, theirs));
  }
  auto const mine = bench::median(a) * 1e6, its = bench::median(b) * 1e6;
  bench::Row{"all-reduce of " + std::to_string(n) + " floats, one rank"}
      .add("ours_us", mine)
      .add("nccl_us", its)
      .add("over_us", mine - its)
      .print(all.options.json);
  ncclCommDestroy(raw);
}

/// The peer's command line.
std::string peer() {
  auto const* const named = std::getenv("CHORALE_PYTHON");
  auto const* const flags = std::getenv("CHORALE_CUDA_PEER");  // --device cpu, say
  return (named != nullptr ? bench::python() : std::string{"python3"}) + " '" + bench::script("cuda_peer.py") + "' " +
         (flags != nullptr ? flags : "");
}

}  // namespace

int main(int argc, char** argv) {
  auto options = Options{};
  for (int i = 1; i < argc; ++i) {
    auto const flag = std::string{argv[i]};
    if (flag == "--json") options.json = true;
    else if (flag == "--rounds" && i + 1 < argc) options.rounds = std::max(1, std::atoi(argv[++i]));
    else return std::fprintf(stderr, "chorale: there is no option %s. Try: --json, --rounds N\n", argv[i]), 2;
  }
  auto const devices = Cuda::visible();
  if (devices.empty()) {
    std::printf("SKIPPED: bench/gpu/cuda: %s\n", Cuda::missing().c_str());
    return 0;
  }
  try {
    auto const scope = Cuda::Scope{devices.front()};
    auto all         = Bench{options, devices.front(), copy_speed()};
    std::fprintf(stderr, "# %s; a copy moves %.0f GB/s\n", all.gpu.name().c_str(), all.copied / 1e9);
    try {
      all.peer.emplace(peer());
      std::fprintf(stderr, "# the peer: %s\n", all.peer->ready().c_str());
    } catch (std::runtime_error const& error) { std::printf("SKIPPED: the peer: %s\n", error.what()); }
    for (std::size_t const rows : {64U, 1024U}) step<Cnn>(all, "cnn", rows, 200);
    for (std::size_t const rows : {64U, 1024U}) step<Mlp>(all, "mlp", rows, 100);
    using Halves = nn::Precision<bf16>;
    step<Block<56, 64>, Halves>(all, "block_64", 64, 30);
    step<Block<28, 128>, Halves>(all, "block_128", 64, 30);
    step<Block<14, 256>, Halves>(all, "block_256", 64, 30);
    step<Block<7, 512>, Halves>(all, "block_512", 64, 30);
    for (std::size_t const n : {1U, 1U << 10U, 1U << 20U}) reduce(all, n);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error);
  }
}
