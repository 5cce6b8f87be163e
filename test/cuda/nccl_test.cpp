// SPDX-License-Identifier: Apache-2.0
//
// NCCL between the ranks of one process. With one GPU there is one rank, for which every collective is a copy.
#include "test/cuda/device.hpp"
#include "test/support/reference.hpp"

#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/hierarchical.hpp>
#include <chorale/reduce/native.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/tensor/cuda/all.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/nccl.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;
using Catch::Contains;
using test::gpu_or_skip, test::through_host, test::two_gpus_or_skip;

static_assert(CollectiveTransport<NcclTransport<>>);
static_assert(ReduceAlgorithm<NativeAllReduce, NcclTransport<>>);
static_assert(NcclTransport<>::reaches(Memory::cuda) && NcclTransport<>::reaches(Memory::host));
static_assert(!NcclTransport<LocalTransport>::reaches(Memory::cuda));
static_assert(ResumableReduce<NativeAllReduce, NcclTransport<>::endpoint>);
static_assert(detail::follows_queue<NativeAllReduce, NcclTransport<>::endpoint>);
static_assert(!detail::follows_queue<OwnThread<NativeAllReduce>, NcclTransport<>::endpoint>);
static_assert(!detail::follows_queue<RingAllReduce, NcclTransport<>::endpoint>);
using Nodes = Layered<NcclTransport<>, Staged<LocalTransport, CudaCopies>>::endpoint;
static_assert(CollectiveEndpoint<Nodes::near_endpoint, float> && !CollectiveEndpoint<Nodes::far_endpoint, float>);
static_assert(!ResumableReduce<HierarchicalAllReduce<>, Nodes>);

namespace {

/// Buckets of 480 KB and more.
struct Wide : nn::Sequential<nn::Input<64>, nn::Dense<300>, nn::ReLU, nn::Dense<400>, nn::ReLU, nn::Dense<3>> {};

template <class Loss, class R, class T> auto trainer(std::vector<Cuda> gpus, R reduce, T transport) {
  return Trainer{nn::compile<Wide>(Loss{}, optim::Adam{}, metric::Accuracy{}), MirroredStrategy{std::move(gpus)},
                 reduce, std::move(transport), 7};
}

/// Of one of them a replica's share is empty.
template <class Target> auto batches() {
  return tiny::Batches<Target>{tiny::batch<Target>(27, 64, std::is_integral_v<Target> ? 1 : 3), {8, 8, 1, 8, 2}};
}

template <class Loss, class R, class T>
std::vector<std::uint64_t> learned(std::vector<Cuda> const& gpus, R reduce, T transport) {
  auto made = trainer<Loss>(gpus, reduce, std::move(transport));
  made.fit(batches<typename Loss::target>(), {.epochs = 2, .show = Show::nothing, .compare_every = 1});
  return made.hashes();
}

auto over_nccl(std::vector<Cuda> const& gpus) { return NcclTransport<>{.devices = gpus}; }

/// Messages from managed memory, as the host reads it.
struct InPlace : LocalTransport {
  static constexpr bool reaches(Memory) { return true; }
};

/// NCCL on each node, and messages between them. Here the nodes have the same GPUs; who gives back pinned memory, as a
/// Staged transport does, may wait for all that is queued on them, and so for a rank that waits for it.
template <class Between = InPlace> auto over_nodes(std::vector<Cuda> const& gpus_of_node, int ranks_per_node) {
  return Layered<NcclTransport<>, Between>{.near = over_nccl(gpus_of_node), .ranks_per_node = ranks_per_node};
}

}  // namespace

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
  auto endpoints    = NcclTransport<>{.devices = {*gpu}}.connect(Group::all_local(1));
  auto& at          = endpoints.at(0);
  auto const n      = std::size_t{1'000};
  auto const memory = gpu->allocate(2 * n * sizeof(float));
  auto const x      = Span<float>{reinterpret_cast<float*>(memory.data()), n};
  auto const y      = Span<float>{x.data() + n, n};
  auto on_host      = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = on_host[i] = static_cast<float>(i) - 3.5F;
  auto const same = [&](Span<float const> got) { return std::equal(got.begin(), got.end(), on_host.begin()); };

  NativeAllReduce{}.all_reduce(at, x, Op::sum);
  CHECK(same(x));
  at.all_reduce(Span<float>{on_host}, Op::max);  // memory that only the host reads
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

TEST_CASE("an all-reduce that was started begins when what was queued before is done", "[transport][cuda]") {
  auto const gpu = gpu_or_skip("an all-reduce that was started begins when what was queued before is done");
  if (!gpu) return;
  auto const scope  = Cuda::Scope{*gpu};
  auto endpoints    = NcclTransport<>{.devices = {*gpu}}.connect(Group::all_local(1));
  auto const n      = std::size_t{1} << 20;
  auto const memory = gpu->allocate(n * sizeof(float));
  auto const x      = Span<float>{reinterpret_cast<float*>(memory.data()), n};
  auto under_way    = NcclTransport<>::endpoint::reduction{};
  CHECK(under_way.done());
  for (int turn = 1; turn < 3; ++turn) {
    auto const front = x.first(n / 2);
    cuda::expect(cuda::launch::activate(Activation::softplus, 0, n, {x.data()}, {x.data()}, cuda::queue()), "activate");
    endpoints[0].start_all_reduce(front, Op::sum, under_way);
    under_way.wait();
    CHECK(under_way.done());
    CHECK(front[n / 2 - 1] == Approx(std::log(turn + 1.0)));  // softplus(log t) = log(t + 1)
    gpu->synchronize();
    CHECK(x[n - 1] == front[n / 2 - 1]);
  }
}

TEST_CASE("collectives of two GPUs over NCCL are what they are called", "[transport][cuda]") {
  auto const gpus = two_gpus_or_skip("collectives of two GPUs over NCCL are what they are called");
  if (gpus.empty()) return;
  auto endpoints     = over_nccl(gpus).connect(Group::all_local(2));
  auto const on_rank = [&](auto& at) {
    auto const scope = Cuda::Scope{gpus[static_cast<std::size_t>(at.rank())]};
    auto const x     = at.rank() == 0 ? std::vector<float>{1, -2, 3, 4} : std::vector<float>{10, 20, -30, 4};
    auto got         = std::vector<std::vector<float>>{x, x, x, x, {0, 0}, std::vector<float>(8)};
    at.all_reduce(Span<float>{got[0]}, Op::sum);
    at.all_reduce(Span<float>{got[1]}, Op::max);
    at.broadcast(Span<float>{got[2]}, 1);
    at.reduce(Span<float>{got[3]}, Op::min, 1);
    at.reduce_scatter(Span<float const>{x}, Span<float>{got[4]}, Op::sum);
    at.all_gather(Span<float const>{x}, Span<float>{got[5]});
    return got;
  };
  auto theirs = std::vector<std::vector<float>>{};
  auto other  = std::thread{[&] { theirs = on_rank(endpoints[1]); }};
  auto ours   = on_rank(endpoints[0]);
  other.join();
  ours[3]   = theirs[3];  // only the root's
  auto want = std::vector<std::vector<float>>{{11, 18, -27, 8}, {10, 20, 3, 4}, {10, 20, -30, 4},
                                              {1, -2, -30, 4},  {11, 18},       {1, -2, 3, 4, 10, 20, -30, 4}};
  CHECK(ours == want);
  want[4] = {-27, 8};
  CHECK(theirs == want);
}

TEST_CASE("buckets of two models leave in one order, however many are under way", "[transport][cuda]") {
  auto const gpus = two_gpus_or_skip("buckets of two models leave in one order, however many are under way");
  if (gpus.empty()) return;
  constexpr std::size_t buckets = 40, size = 100;
  auto ends = std::vector<std::size_t>{};
  for (std::size_t i = 1; i <= buckets; ++i) ends.push_back(i * size);
  auto endpoints     = over_nccl(gpus).connect(Group::all_local(2));
  auto const on_rank = [&](auto& at) {
    auto const scope  = Cuda::Scope{gpus[static_cast<std::size_t>(at.rank())]};
    auto const memory = Cuda::block{2 * buckets * size * sizeof(float)};
    auto const all    = Span<float>{reinterpret_cast<float*>(memory.data()), 2 * buckets * size};
    using Reducer     = BucketedReducer<NativeAllReduce, std::remove_reference_t<decltype(at)>>;
    auto first        = Reducer{{}, at, ends, all.first(buckets * size), Op::sum, Tag{1U << 16}};
    auto second       = Reducer{{}, at, ends, all.last(buckets * size), Op::sum, Tag{2U << 16}};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i + 1) * (at.rank() == 0 ? 1.0F : 2.0F);
    first.ready(buckets * size);
    while (at.rank() == 0 && first.overlap().buckets == 0) first.ready(buckets * size);  // more than the other sees
    second.ready(buckets * size);
    first.finish();
    second.finish();
    return std::vector<float>(all.begin(), all.end());
  };
  auto theirs = std::vector<float>{};
  auto other  = std::thread{[&] { theirs = on_rank(endpoints[1]); }};
  auto ours   = on_rank(endpoints[0]);
  other.join();
  CHECK(ours == theirs);
  for (std::size_t i = 0; i < ours.size(); ++i) REQUIRE(ours[i] == 3 * static_cast<float>(i + 1));
}

TEST_CASE("two GPUs learn the same bits over NCCL, during backward or after it, as over the host", "[trainer][cuda]") {
  auto const gpus = two_gpus_or_skip("two GPUs learn the same bits over NCCL, during backward or after it, as over ..");
  if (gpus.empty()) return;
  auto const check = [&]<class Loss>(Loss) {
    auto const want = learned<Loss>(gpus, RingAllReduce{}, through_host());  // a + b has no order
    CHECK(want[0] == want[1]);
    CHECK(learned<Loss>(gpus, NativeAllReduce{}, over_nccl(gpus)) == want);
    CHECK(learned<Loss>(gpus, OwnThread<NativeAllReduce>{}, over_nccl(gpus)) == want);
    auto const replaying = std::vector{gpus[0].replaying(), gpus[1].replaying()};
    CHECK(learned<Loss>(replaying, NativeAllReduce{}, over_nccl(gpus)) == want);
  };
  check(loss::SparseCrossEntropy{});
  check(loss::CrossEntropy{});  // whose accuracy the host computes
}

TEST_CASE("NCCL within nodes and messages between them make the sum of all ranks", "[transport][cuda]") {
  auto const gpus = two_gpus_or_skip("NCCL within nodes and messages between them make the sum of all ranks");
  if (gpus.empty()) return;
  auto endpoints = over_nodes(gpus, 2).connect(Group::all_local(4));  // two nodes of two GPUs
  auto memory    = std::vector<Cuda::block>{};
  for (Rank r = 0; r < 4; ++r) memory.push_back(gpus[static_cast<std::size_t>(r % 2)].allocate(1'001 * sizeof(float)));
  auto const on_rank = [&](auto& at, std::size_t n) {
    auto const scope = Cuda::Scope{gpus[static_cast<std::size_t>(at.near().rank())]};
    auto const x     = Span<float>{reinterpret_cast<float*>(memory[static_cast<std::size_t>(at.rank())].data()), n};
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i + 1) * static_cast<float>(1 << at.rank());
    HierarchicalAllReduce<>{}.all_reduce(at, x, Op::sum, Tag{7});
    auto on_host = std::vector<float>(n, 1.0F + static_cast<float>(at.rank()));
    HierarchicalAllReduce<RingAllReduce>{}.all_reduce(at, Span<float>{on_host}, Op::max, Tag{7});
    return std::pair{std::vector<float>(x.begin(), x.end()), on_host};
  };
  for (std::size_t const n : {1U, 6U, 1'001U}) {
    auto all   = std::vector<std::pair<std::vector<float>, std::vector<float>>>(4);
    auto said  = std::vector<std::string>(4);
    auto ranks = std::vector<std::thread>{};
    for (std::size_t r = 0; r < 4; ++r)
      ranks.emplace_back([&, r] {
        try {
          all[r] = on_rank(endpoints[r], n);
        } catch (Error const& error) { said[r] = error.what(); }
      });
    for (auto& rank : ranks) rank.join();
    REQUIRE(said == std::vector<std::string>(4));
    for (auto const& one : all) CHECK(one == all[0]);
    for (std::size_t i = 0; i < n; ++i) REQUIRE(all[0].first[i] == 15 * static_cast<float>(i + 1));
    CHECK(all[0].second == std::vector<float>(n, 4));
  }
}

TEST_CASE("nodes with NCCL inside learn what GPUs that send all by the host do", "[trainer][cuda]") {
  auto const gpus = two_gpus_or_skip("nodes with NCCL inside learn what GPUs that send all by the host do");
  if (gpus.empty()) return;
  auto const four = std::vector{gpus[0], gpus[1], gpus[0], gpus[1]};
  using Loss      = loss::SparseCrossEntropy;
  using Messages  = decltype(through_host());
  auto const want = learned<Loss>(four, HierarchicalAllReduce<>{},  // the same order of sums
                                  Layered<Messages, Messages>{.ranks_per_node = 2});
  CHECK(learned<Loss>(four, HierarchicalAllReduce<>{}, over_nodes(gpus, 2)) == want);
  CHECK(learned<Loss>(four, OwnThread<HierarchicalAllReduce<>>{}, over_nodes(gpus, 2)) == want);
}

TEST_CASE("nodes of one GPU each learn over their layers what one GPU does", "[trainer][cuda]") {
  auto const gpu = gpu_or_skip("nodes of one GPU each learn over their layers what one GPU does");
  if (!gpu) return;
  using Loss      = loss::SparseCrossEntropy;
  auto const both = std::vector{*gpu, *gpu};
  CHECK(learned<Loss>(both, HierarchicalAllReduce<>{}, over_nodes<decltype(through_host())>({*gpu}, 1)) ==
        learned<Loss>(both, RingAllReduce{}, through_host()));  // a + b has no order
}

TEST_CASE("a NaN on one of two GPUs is found by both over NCCL", "[trainer][cuda]") {
  auto const gpus = two_gpus_or_skip("a NaN on one of two GPUs is found by both over NCCL");
  if (gpus.empty()) return;
  auto const told = [&](auto made) {
    auto data               = batches<int>();
    data.rows.x[7 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();  // the last row of the first batch
    auto what               = std::string{};
    try {
      made.fit(data, tiny::quietly);
    } catch (NumericFault const& fault) { what = fault.what(); }
    return what;
  };
  auto const over_messages = told(trainer<loss::SparseCrossEntropy>(gpus, RingAllReduce{}, through_host()));
  CHECK_THAT(over_messages, Contains("step 0"));
  CHECK(told(trainer<loss::SparseCrossEntropy>(gpus, NativeAllReduce{}, over_nccl(gpus))) == over_messages);
}
