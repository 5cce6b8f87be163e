// SPDX-License-Identifier: Apache-2.0
//
// NCCL between the ranks of one process. With one GPU there is one rank, for which every collective is a copy.
#include "test/cuda/device.hpp"

#include <chorale/reduce/native.hpp>
#include <chorale/transport/nccl.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <vector>

using namespace chorale;
using Catch::Contains;
using test::gpu_or_skip;

static_assert(CollectiveTransport<NcclTransport<>>);
static_assert(ReduceAlgorithm<NativeAllReduce, NcclTransport<>>);
static_assert(NcclTransport<>::reaches(Memory::cuda) && NcclTransport<>::reaches(Memory::host));
static_assert(!NcclTransport<LocalTransport>::reaches(Memory::cuda));

TEST_CASE("NcclTransport without a GPU says so when it connects", "[transport][cuda]") {
  if (!Cuda::visible().empty()) {
    CHECK(Cuda::missing().empty());
    return;
  }
  CHECK_THROWS_AS(NcclTransport<>{}.connect(Group::all_local(1)), BadArgument);
  CHECK_THROWS_WITH(NcclTransport<>{}.connect(Group::all_local(1)), Contains("CUDA, but there is no device"));
}

TEST_CASE("NcclTransport refuses more ranks than it has devices", "[transport][cuda]") {
  auto const gpu = gpu_or_skip("NcclTransport refuses more ranks than it has devices");
  if (!gpu) return;
  auto const transport = NcclTransport<>{.devices = {*gpu}};
  CHECK_THROWS_WITH(transport.connect(Group::all_local(2)), Contains("2 ranks") && Contains("has 1"));
}

TEST_CASE("the collectives of one rank over NCCL leave its numbers as they are", "[transport][cuda]") {
  auto const gpu = gpu_or_skip("the collectives of one rank over NCCL leave its numbers as they are");
  if (!gpu) return;
  auto endpoints  = NcclTransport<>{.devices = {*gpu}}.connect(Group::all_local(1));
  auto& at        = endpoints.at(0);
  auto const n    = std::size_t{1'000};
  auto const memory = gpu->allocate(2 * n * sizeof(float));
  auto const x    = Span<float>{reinterpret_cast<float*>(memory.data()), n};
  auto const y    = Span<float>{x.data() + n, n};
  auto on_host    = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = on_host[i] = static_cast<float>(i) - 3.5F;
  auto const same = [&](Span<float const> got) { return std::equal(got.begin(), got.end(), on_host.begin()); };

  NativeAllReduce{}.all_reduce(at, x, Op::sum);
  CHECK(same(x));
  at.all_reduce(Span<float>{on_host}, Op::max);                            // memory that only the host reads
  CHECK(same(x));
  at.reduce(x, Op::product, 0);
  CHECK(same(x));
  at.broadcast(x, 0);
  CHECK(same(x));
  at.reduce_scatter(Span<float const>{x}, y, Op::min);
  CHECK(same(y));
  std::fill(y.begin(), y.end(), 0.0F);
  at.all_gather(Span<float const>{x}, y);
  CHECK(same(y));
  CHECK_THROWS_AS(at.broadcast(x, 1), BadArgument);
  CHECK_THROWS_AS(at.all_gather(Span<float const>{x}, y.first(n - 1)), BadArgument);
}

TEST_CASE("a rank over NCCL that has failed throws from then on, and does not hang", "[transport][cuda]") {
  auto const gpu = gpu_or_skip("a rank over NCCL that has failed throws from then on, and does not hang");
  if (!gpu) return;
  auto endpoints = NcclTransport<>{.devices = {*gpu}}.connect(Group::all_local(1));
  endpoints[0].fail("a test asked for it");
  auto x = std::vector<float>(8);
  CHECK_THROWS_AS(endpoints[0].all_reduce(Span<float>{x}, Op::sum), PeerLost);
}
