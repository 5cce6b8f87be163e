// SPDX-License-Identifier: Apache-2.0
//
// Batches that a thread of their own copies to a GPU.
#include "test/cuda/device.hpp"
#include "test/support/tiny.hpp"

#include <chorale/data/stages/to_cuda.hpp>
#include <chorale/device/cuda_copies.hpp>
#include <chorale/tensor/cuda/all.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace chorale;
using test::gpu_or_skip, test::through_host;

namespace {

auto rows() {
  auto const made = tiny::batch<int>(50, 64, 1);
  return data::from_tensors(made.x, made.y, 64);
}

/// The variables after two epochs of shuffled batches, the last of them smaller, and a look at all of them.
template <class Data> std::uint64_t learned(Data const& train, std::vector<Cuda> devices) {
  auto trainer = Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}),
                         MirroredStrategy{std::move(devices)}, RingAllReduce{}, through_host(), 7};
  trainer.fit(train, {.epochs = 2, .show = Show::nothing});
  CHECK(trainer.evaluate(train).rows() == 50);
  return trainer.hashes()[0];
}

}  // namespace

template <class D> concept HasStages = requires(D const& d) { d.shuffle(10); };
using Batches                        = decltype(rows().batch(8));
static_assert(HasStages<data::Prefetched<Batches>> && !HasStages<data::Prefetched<data::ToCuda<Batches>>>);

TEST_CASE("batches on a GPU are those of the host, in their order", "[data][cuda]") {
  auto const gpu = gpu_or_skip("batches on a GPU are those of the host, in their order");
  if (!gpu) return;
  auto const scope   = Cuda::Scope{*gpu};
  auto const on_host = rows().batch(8);
  auto const on_gpu  = data::on_cuda(on_host, *gpu);
  CHECK(on_gpu.size() == on_host.size());
  auto const check = [&](auto stream) {
    auto want = on_host.stream(0);
    auto a = Batch{}, b = Batch{};
    while (want.next(a)) {
      REQUIRE(stream.next(b));
      CHECK(b.rows == a.rows);
      CHECK(std::vector<int>(b.y.begin(), b.y.end()) == std::vector<int>(a.y.begin(), a.y.end()));
      CHECK(CudaCopies::holds(reinterpret_cast<std::byte const*>(b.x.data())));
      auto x = std::vector<float>(b.x.size());
      CudaCopies::to_host(std::as_writable_bytes(Span<float>{x}), std::as_bytes(b.x));
      CHECK(x == std::vector<float>(a.x.begin(), a.x.end()));
    }
    CHECK_FALSE(stream.next(b));
  };
  check(on_gpu.stream(0));
  check(data::on_cuda(on_host.prefetch(2), *gpu).stream(0));  // which makes batches in memory of its own
  check(on_gpu.prefetch(1).stream(0));
  check(on_gpu.prefetch(3).stream(0));
}

TEST_CASE("rows are gathered in memory that a GPU reads fast", "[data][cuda]") {
  auto const gpu = gpu_or_skip("rows are gathered in memory that a GPU reads fast");
  if (!gpu) return;
  auto const kind = [&](auto const& batches) {
    auto stream = data::on_cuda(batches, *gpu).stream(0);
    auto batch  = Batch{};
    auto what   = cudaPointerAttributes{};
    REQUIRE(stream.next(batch));
    cuda::expect(cudaPointerGetAttributes(&what, batch.y.data()), "cudaPointerGetAttributes");
    return what.type;
  };
  CHECK(kind(rows().batch(8)) == cudaMemoryTypeHost);
  CHECK(kind(rows().batch(8).repeat(2)) == cudaMemoryTypeHost);
  CHECK(kind(rows().batch(8).prefetch(1)) == cudaMemoryTypeUnregistered);
}

TEST_CASE("a Trainer learns the same bits from batches that are on its GPU already", "[data][cuda]") {
  auto const gpu = gpu_or_skip("a Trainer learns the same bits from batches that are on its GPU already");
  if (!gpu) return;
  auto const batches = rows().shuffle(50, 3).batch(8);
  auto const ahead   = data::on_cuda(batches, *gpu).prefetch(2);
  auto const one     = learned(batches, {*gpu});
  CHECK(learned(data::on_cuda(batches, *gpu), {*gpu}) == one);
  CHECK(learned(ahead, {*gpu}) == one);
  CHECK(learned(ahead, {gpu->replaying()}) == one);
  CHECK(learned(ahead, {*gpu, *gpu}) == learned(batches, {*gpu, *gpu}));
}
