// SPDX-License-Identifier: Apache-2.0
//
// The device: what a program is told without a GPU, which is tested everywhere, and memory and queues with one.
#include "test/cuda/device.hpp"

#include <chorale/device/cuda.hpp>
#include <chorale/device/cuda_copies.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/one_device.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace chorale;
using Catch::Contains;
using test::gpu_or_skip;

static_assert(Device<Cuda>);
static_assert(Cuda::memory == Memory::cuda);

TEST_CASE("a program with CUDA says on a machine without a GPU that there is none", "[device][cuda]") {
  if (!Cuda::visible().empty()) {
    CHECK(Cuda::missing().empty());
    return;
  }
  CHECK_THAT(Cuda::missing(), Contains("this program was built with CUDA, but there is no device: cudaGetDeviceCount"));
  CHECK_THROWS_AS(Cuda{}, BadArgument);
  CHECK_THROWS_WITH(Cuda{3}, Contains("there is no device") && Contains("Try:") && Contains("Cpu"));
  CHECK_THROWS_WITH(MirroredStrategy<Cuda>{}, Contains("a list of 0 devices"));
  CHECK_THROWS_WITH(OneDeviceStrategy<Cuda>{}, Contains("OneDeviceStrategy needs a device"));
}

TEST_CASE("a block of nothing, and memory of the host, need no GPU", "[device][cuda]") {
  CHECK(Cuda::block{}.data() == nullptr);
  CHECK(Cuda::block{0}.size() == 0);
  auto const here = std::array<std::byte, 4>{};
  CHECK_FALSE(CudaCopies::holds(here.data()));
}

TEST_CASE("an error of the CUDA runtime names the call, its place and what to try", "[device][cuda]") {
  auto const fault = [](cudaError_t code) { cuda::expect(code, "cudaMemcpyAsync"); };
  CHECK_NOTHROW(fault(cudaSuccess));
  CHECK_THROWS_AS(fault(cudaErrorMemoryAllocation), OutOfMemory);
  CHECK_THROWS_WITH(fault(cudaErrorInvalidValue), Contains("cudaMemcpyAsync (cuda_test.cpp:") &&
                                                      Contains("cudaErrorInvalidValue") &&
                                                      Contains("invalid argument") && Contains("Try:"));
  CHECK_THROWS_WITH(fault(cudaErrorNoKernelImageForDevice), Contains("-arch"));
}

TEST_CASE("a device that does not exist is refused", "[device][cuda]") {
  CHECK_THROWS_AS(Cuda{-1}, BadArgument);
  CHECK_THROWS_AS(Cuda{static_cast<int>(Cuda::visible().size())}, BadArgument);
}

TEST_CASE("a block of a GPU is zero, and the host reads and writes it", "[device][cuda]") {
  auto const gpu = gpu_or_skip("a block of a GPU is zero, and the host reads and writes it");
  if (!gpu) return;
  auto const block = gpu->allocate(1 << 20);
  REQUIRE(block.size() == 1 << 20);
  CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 256 == 0);
  CHECK(std::all_of(block.data(), block.data() + block.size(), [](std::byte b) { return b == std::byte{0}; }));
  block.data()[7] = std::byte{42};
  cuda::expect(cudaMemcpyAsync(block.data() + 8, block.data() + 7, 1, cudaMemcpyDefault, cudaStreamPerThread), "copy");
  gpu->synchronize();
  CHECK(block.data()[8] == std::byte{42});
  CHECK(CudaCopies::holds(block.data()));
}

TEST_CASE("a block that is larger than the GPU is refused with both numbers", "[device][cuda]") {
  auto const gpu = gpu_or_skip("a block that is larger than the GPU is refused with both numbers");
  if (!gpu) return;
  CHECK_THROWS_AS(gpu->allocate(std::size_t{1} << 50), OutOfMemory);
  CHECK_THROWS_WITH(gpu->allocate(std::size_t{1} << 50), Contains("1125899906842624"));
}

TEST_CASE("messages get to pinned memory and back", "[device][cuda]") {
  auto const gpu = gpu_or_skip("messages get to pinned memory and back");
  if (!gpu) return;
  auto const scope  = Cuda::Scope{*gpu};
  auto const there  = gpu->allocate(64);
  auto const pinned = CudaCopies::allocate(64);
  there.data()[5]   = std::byte{9};
  CudaCopies::to_host({pinned.data(), 64}, {there.data(), 64});
  CHECK(pinned.data()[5] == std::byte{9});
  pinned.data()[6] = std::byte{8};
  CudaCopies::from_host({there.data(), 64}, {pinned.data(), 64});
  CHECK(there.data()[6] == std::byte{8});
}

TEST_CASE("a mark is done when its queue has come to it", "[device][cuda]") {
  auto const gpu = gpu_or_skip("a mark is done when its queue has come to it");
  if (!gpu) return;
  auto const scope = Cuda::Scope{*gpu};
  auto stream      = cuda::Stream{};
  auto other       = cuda::Stream{};
  auto room        = cuda::Room{};
  auto* const at   = room.take(1 << 20);
  auto before = cuda::Event{}, after = cuda::Event{};
  before.record(stream.get());
  cuda::expect(cudaMemsetAsync(at, 1, 1 << 20, stream.get()), "cudaMemsetAsync");
  after.record(stream.get());
  other.follow(after);
  other.synchronize();
  CHECK(after.done());
  CHECK(after.since(before) >= 0);
  CHECK(room.take(16) == at);  // what is there is enough
}

TEST_CASE("devices are connected once, however often they are asked to be", "[device][cuda]") {
  auto const gpus = test::two_gpus_or_skip("devices are connected once, however often they are asked to be");
  if (gpus.empty()) return;
  for (int i = 0; i < 2; ++i) CHECK_NOTHROW(Cuda::connect({gpus[0], gpus[1], gpus[0]}));
  auto const at = [&](std::size_t i) {
    auto const scope = Cuda::Scope{gpus[i]};
    auto room        = cuda::Room{};
    static_cast<void>(room.take(64 * sizeof(float)));
    return room;
  };
  auto from = at(0), to = at(1);
  auto sent = std::vector<float>(64), got = sent;
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<float>(i);
  auto* const there = from.fetch(sent.data(), sent.size());
  cuda::copy(to.take(64 * sizeof(float)), there, 64 * sizeof(float));
  cuda::copy(got.data(), to.take(64 * sizeof(float)), 64 * sizeof(float));
  gpus[0].synchronize();
  CHECK(got == sent);
}
