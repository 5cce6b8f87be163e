// SPDX-License-Identifier: Apache-2.0
//
// Training steps on a GPU beside their floor, and an all-reduce of one rank beside NCCL's own. tools/gpu builds it.
//
//   cuda_bench [--json]
//
// The floor of a step is the bytes that it must move at least, at the speed of a copy on the same device, or its
// products at 60e12 operations a second, which is float without tensor cores; the larger of the two.
#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/nn/activation.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/conv2d.hpp>
#include <chorale/nn/dense.hpp>
#include <chorale/nn/flatten.hpp>
#include <chorale/nn/loss.hpp>
#include <chorale/nn/pool2d.hpp>
#include <chorale/nn/sequential.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/tensor/ops_cuda.hpp>
#include <chorale/transport/nccl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

using namespace chorale;

namespace {

struct Cnn : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                            nn::Dense<64>, nn::ReLU, nn::Dense<10>> {};
struct Mlp : nn::Sequential<nn::Input<784>, nn::Dense<4096>, nn::ReLU, nn::Dense<4096>, nn::ReLU, nn::Dense<10>> {};

struct Rows {
  std::size_t rows = 0, first_row = 0;
  std::vector<float> x{};
  std::vector<int> y{};
};

/// The median of five times, each in seconds for one of `n` calls.
template <class F>
double seconds(int n, F f) {
  auto times = std::vector<double>{};
  for (int run = 0; run < 5; ++run) {
    auto const begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i) f();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / n);
  }
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  return times[2];
}

/// Bytes a second that a copy on the device reads and writes.
double copy_speed() {
  constexpr auto bytes = std::size_t{256} << 20;
  auto from = cuda::Room{}, to = cuda::Room{};
  auto* const a = from.take(bytes);
  auto* const b = to.take(bytes);
  auto const t  = seconds(10, [&] {
    cuda::expect(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, cuda::queue()), "cudaMemcpyAsync");
    cuda::expect(cudaStreamSynchronize(cuda::queue()), "cudaStreamSynchronize");
  });
  return 2 * static_cast<double>(bytes) / t;
}

void report(bool json, std::string const& what, double measured, double predicted, char const* arithmetic) {
  if (json)
    std::printf("{\"what\": \"%s\", \"measured_us\": %.2f, \"predicted_us\": %.2f, \"ratio\": %.2f}\n", what.c_str(),
                measured * 1e6, predicted * 1e6, measured / predicted);
  else
    std::printf("%-42s %10.2f us, at least %8.2f us (%s): %.2f times\n", what.c_str(), measured * 1e6, predicted * 1e6,
                arithmetic, measured / predicted);
}

/// products    multiplications of one row in forward
template <class Net>
void step(bool json, Cuda const& gpu, std::string const& name, std::size_t rows, double products, double speed,
          double flops) {
  auto copy = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}).instantiate(gpu, 1);
  auto data = Rows{rows, 0, std::vector<float>(rows * 784, 0.5F), std::vector<int>(rows, 3)};
  auto const once = [&] {
    copy.value_and_gradient(data, 0, LooksAtEnd{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
  };
  seconds(4, once);
  // Adam reads w, g, m, v and writes w, m, v; backward writes g. Each of y and dy is written and read once.
  auto const n     = static_cast<double>(Net::plan.elements) * 4;
  auto const acts  = static_cast<double>(rows * Net::plan.activations_per_row) * 4;
  auto const bytes = 8 * n + 4 * acts;
  auto const floor = std::max(bytes / speed, 6 * products * static_cast<double>(rows) / flops);
  auto const way   = gpu.replays() ? ", replayed" : ", launched";
  report(json, name + ", batch " + std::to_string(rows) + way, seconds(50, once), floor, "8 w + 4 y bytes, or 6 flops");
}

void reduce(bool json, Cuda const& gpu, std::size_t n) {
  auto endpoints = NcclTransport<>{.devices = {gpu}}.connect(Group::all_local(1));
  auto room      = cuda::Room{};
  auto const x   = Span<float>{static_cast<float*>(room.take(n * sizeof(float))), n};
  auto const ours = [&] { endpoints[0].all_reduce(x, Op::sum); };
  auto raw = ncclComm_t{};
  int device = gpu.index();
  detail::expect_nccl(ncclCommInitAll(&raw, 1, &device), "ncclCommInitAll");
  auto const theirs = [&] {
    detail::expect_nccl(ncclAllReduce(x.data(), x.data(), n, ncclFloat, ncclSum, raw, cuda::queue()), "ncclAllReduce");
    cuda::expect(cudaStreamSynchronize(cuda::queue()), "cudaStreamSynchronize");
  };
  seconds(20, ours), seconds(20, theirs);
  report(json, "all-reduce of " + std::to_string(n) + " floats", seconds(200, ours), seconds(200, theirs),
         "ncclAllReduce, and a wait");
  ncclCommDestroy(raw);
}

}  // namespace

int main(int argc, char** argv) {
  auto const json    = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  auto const devices = Cuda::visible();
  if (devices.empty()) {
    std::printf("SKIPPED: bench/gpu/cuda: %s\n", Cuda::missing().c_str());
    return 0;
  }
  try {
    auto const& gpu  = devices.front();
    auto const scope = Cuda::Scope{gpu};
    auto const speed = copy_speed();
    constexpr auto flops = 60e12;                                          // float without tensor cores
    std::printf("# %s; a copy moves %.0f GB/s\n", gpu.name().c_str(), speed / 1e9);
    constexpr auto cnn = 26 * 26 * 32 * 9 + 5408 * 64 + 64 * 10, mlp = 784 * 4096 + 4096 * 4096 + 4096 * 10;
    for (auto const& device : {gpu, gpu.replaying()})
      for (std::size_t const rows : {64, 1024}) {
        step<Cnn>(json, device, "CNN", rows, cnn, speed, flops);
        step<Mlp>(json, device, "MLP 784-4096-4096-10", rows, mlp, speed, flops);
      }
    for (std::size_t const n : {1, 1 << 10, 1 << 20}) reduce(json, gpu, n);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error);
  }
}
