// SPDX-License-Identifier: Apache-2.0
//
// The memory that is planned for a rank is the memory that it takes: of its arena, of its activations, and of messages.
#include "test/support/count_memory.hpp"

#include <chorale/advice/network_memory.hpp>
#include <chorale/data/elements.hpp>
#include <chorale/model/custom.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/reduce/bucketed.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace memory_plan_test {

using namespace chorale;

struct Net : nn::Sequential<nn::Input<30>, nn::Dense<300>, nn::ReLU, nn::Dense<50>, nn::ReLU, nn::Dense<3>> {};

auto model(float clip = 0) {
  return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{.global_clipnorm = clip});
}

/// Sizes of the messages that a rank of so many adds up, each as often as an operation keeps it.
template <class S, class R> std::vector<std::size_t> kept_messages(Rank rank, int world, bool clips) {
  auto const plan = PlanView{Net::plan};
  auto all        = std::vector<std::size_t>{};
  auto begin      = std::size_t{0};
  if constexpr (shards_gradients<S>) {  // what two buffers and a kept unit need at most
    auto const units = decltype(model())::template units_on<Cpu>();
    for (std::size_t place = 0; place < 3; ++place) {
      auto most = std::size_t{0};
      for (std::size_t u = 0; u < units.count(); ++u)
        if (auto const n = detail::size_of_unit(plan, units, u); place == (u == units.turns ? 2 : u % 2))
          most = std::max(most, scratch_bytes<typename R::scatter>(rank, world, n, 4, detail::unit_ends(n, world)));
      all.push_back(most);
    }
    all.push_back(scratch_bytes<RecursiveDoublingAllReduce>(rank, world, 32, 4));
    auto const each = clips ? detail::report_of_units(plan, units, world) : std::size_t{1};
    all.push_back(scratch_bytes<RecursiveDoublingAllReduce>(rank, world, each * static_cast<std::size_t>(world), 8));
  } else if constexpr (!shards_optimizer<S>) {
    for (auto const end : detail::bucket_ends<R>(plan.variables, plan.ends(), plan.elements)) {
      all.push_back(scratch_bytes<R>(rank, world, end - begin, 4));
      begin = end;
    }
  } else {
    begin = plan::header;
    for (auto end : detail::bucket_ends<R>(plan.variables, plan.ends(), plan.elements)) {
      auto ends = std::vector<std::size_t>{};
      end       = std::min(end, plan.elements - plan::trailer);
      for (Rank r = 0; r < world; ++r)
        ends.push_back(std::clamp(plan::header + placement::Shard{r, world}.of(plan.body().size()).end, begin, end) -
                       begin);
      all.push_back(scratch_bytes<typename R::scatter>(rank, world, end - begin, 4, ends));
      begin = end;
    }
    all.push_back(scratch_bytes<RecursiveDoublingAllReduce>(rank, world, 32, 4));
    auto const each = clips ? 1 + SquareTree::most_nodes(SquareTree::lines(plan.body().size())) : std::size_t{1};
    all.push_back(scratch_bytes<RecursiveDoublingAllReduce>(rank, world, each * static_cast<std::size_t>(world), 8));
  }
  return all;
}

/// Makes copies and one step on each of `world` ranks: all bytes are those that were planned.
template <class S, class R> void check(int world, float clip = 0) {
  CAPTURE(world, clip);
  auto const what    = model(clip);
  auto const devices = Cpu::logical(world);
  auto const x       = std::vector<float>(12 * 30, 0.5F);
  auto const y       = std::vector<int>(12, 1);
  auto& blocks       = test::memory.block_bytes;
  auto live          = Live{S{devices}, R{}, Counting<LocalTransport>{}};
  auto const before  = blocks.load();
  auto copies        = live.create(what, 7);
  auto const arenas  = blocks - before;
  auto sizes         = PerReplica<std::vector<std::size_t>>(copies.size());
  auto sent          = PerReplica<Sent>(copies.size());
  live.run(
      [&](auto& replica, auto& copy, std::vector<std::size_t>& to, Sent& bytes) {
        auto const rows   = share(12, replica.id(), replica.num_replicas());
        auto const batch  = BasicBatch<float, int>{.x = Span<float const>{x}.subspan(rows.begin * 30, rows.size() * 30),
                                                   .y = Span<int const>{y}.subspan(rows.begin, rows.size()),
                                                   .rows        = rows.size(),
                                                   .first_row   = rows.begin,
                                                   .global_rows = 12};
        test::asked.calls = 0;
        test::asked.on    = true;
        auto result       = replica.value_and_gradient_ahead(copy, batch);
        live.update(replica, copy, result.gradients);
        test::asked.on    = false;
        auto const unsent = replica.sent();
        result            = replica.value_and_gradient_ahead(copy, batch);
        live.update(replica, copy, result.gradients);
        bytes = {replica.sent().messages - unsent.messages, replica.sent().bytes - unsent.bytes};
        to.assign(test::asked.bytes.begin(),
                  test::asked.bytes.begin() + static_cast<std::ptrdiff_t>(test::asked.calls));
      },
      copies, sizes, sent);
  auto planned = std::size_t{0}, planned_arenas = planned;
  for (Rank rank = 0; rank < world; ++rank) {
    CAPTURE(rank);
    auto const i      = static_cast<std::size_t>(rank);
    auto const rows   = share(12, rank, world).size();
    auto const memory = memory_plan<S>(what, R{}, devices[i], rows, {rank, world});
    planned_arenas += memory.variables + memory.gradients + memory.slots + memory.gathered;
    planned += memory.peak() - memory.received;
    if (ShardedReduce<R>) {  // allocates messages in each step
      continue;
    } else if (!std::same_as<R, DirectAllReduce> && world > 1) {
      auto messages = std::size_t{0};
      REQUIRE(sizes[i].size() < test::asked.bytes.size());  // all were counted
      if constexpr (Schedule<R>)
        for (auto const bytes : kept_messages<S, R>(rank, world, clip > 0)) {
          if (bytes == 0) continue;
          auto const found = std::ranges::find(sizes[i], bytes);
          REQUIRE(found != sizes[i].end());  // each by an allocation of its own
          sizes[i].erase(found);
          messages += bytes;
        }
      CHECK(memory.received == messages);
      CHECK(messages > 0);
    } else {
      CHECK(memory.received == 0);
    }
    CHECK(memory == memory_plan<S>(what, R{}, devices[i], rows, {rank, world}));
  }
  if constexpr (shards_gradients<S>)  // what units send, in a second step
    for (Rank rank = 0; rank < world; ++rank)
      CHECK(step_operations<S>(what, R{}, world).sent(rank) == sent[static_cast<std::size_t>(rank)]);
  CHECK(arenas == planned_arenas);
  if constexpr (!ShardedReduce<R>) CHECK(blocks - before == planned);  // which computes the rows of a shard at once
}

using Mirrored = MirroredStrategy<>;
using Zero1    = ShardedStrategy<Zero::one>;
using Zero2    = ShardedStrategy<Zero::two>;
using Zero3    = ShardedStrategy<Zero::three>;

// What types say is known to the compiler.
constexpr auto& net     = Net::plan;
constexpr auto mirrored = memory_plan<Net, Mirrored, optim::Adam>(4, 32);
constexpr auto sharded  = memory_plan<Net, Zero1, optim::Adam>(4, 32);
static_assert(mirrored.parameters == 30 * 300 + 300 + 300 * 50 + 50 + 50 * 3 + 3);
static_assert(mirrored.variables == 4 * net.elements && mirrored.gradients == mirrored.variables);
static_assert(mirrored.slots == 2 * mirrored.variables && mirrored.gathered == 0);
static_assert(sharded.variables == mirrored.variables && sharded.gradients == mirrored.gradients);
static_assert(sharded.slots == 8 * placement::Shard{0, 4}.of(net.elements - 32).size());
constexpr auto variables = memory_plan<Net, Zero3, optim::Adam>(4, 32);
static_assert(variables.slots < sharded.slots + 8 * 64 && variables.variables < mirrored.variables / 3);
static_assert(variables.gathered != 0 && memory_plan<Net, Zero2, optim::Adam>(4, 32).gathered == 0);
static_assert(mirrored.activations == 32 * 4 * (300 + 50), "forward leaves what both ReLU give for backward");
static_assert(memory_plan<Net, Mirrored, optim::SGD>(1, 8).slots == 4 * net.elements * optim::SGD::slots);
static_assert(memory_plan<Net, Mirrored, optim::Adam>(1, 8).received == 0);
static_assert(memory_plan<Net, Mirrored, optim::Adam, Bucketed<RingAllReduce, OneBucket>>(2, 8).received ==
              scratch_bytes<RingAllReduce>(0, 2, net.elements, 4));
static_assert(within_memory<mirrored.peak(), 4, 32, Net, Mirrored, optim::Adam>());

}  // namespace memory_plan_test

using namespace memory_plan_test;

TEST_CASE("planned bytes are allocated bytes on each rank, of arenas, activations and messages", "[strategy][memory]") {
  for (int const world : {1, 2, 3, 4}) {
    check<Mirrored, RingAllReduce>(world);
    check<Mirrored, Bucketed<RingAllReduce, BucketCount<3>>>(world);
    check<Mirrored, DirectAllReduce>(world);
    check<Zero1, RingAllReduce>(world);
    check<Zero1, RingAllReduce>(world, 0.5F);
    check<CentralStorageStrategy<>, DirectAllReduce>(world);
    check<Zero2, RingAllReduce>(world, 0.5F);
    check<Zero3, RingAllReduce>(world);
    check<Zero3, Bucketed<Reproducible<8>, OneBucket>>(world);  // units are cuts of their own
  }
}

TEST_CASE("what the compiler plans is what the program plans, up to workspaces of kernels", "[strategy][memory]") {
  auto const device = Cpu::logical(1)[0];
  for (Rank rank = 0; rank < 4; ++rank) {
    auto const constant = memory_plan<Net, Zero1, optim::Adam>(4, 32, rank);
    auto const exact    = memory_plan<Zero1>(model(), RingAllReduce{}, device, 32, {rank, 4});
    CHECK(constant.variables == exact.variables);
    CHECK(constant.slots == exact.slots);
    CHECK(constant.received == exact.received);
    CHECK(constant.gradients <= exact.gradients);  // threads of the device
    CHECK(*constant.activations <= *exact.activations);
    CHECK(*exact.activations < 8 * *constant.activations);
  }
}

TEST_CASE("a budget is refused with both numbers, the largest part and what to try", "[strategy][memory]") {
  auto const memory = ReplicaMemory{.variables = 4'000, .gradients = 4'000, .slots = 8'000, .activations = 2'048};
  CHECK_NOTHROW(check_budget(memory, 0));
  CHECK_NOTHROW(check_budget(memory, 18'048));
  CHECK_THROWS_WITH(
      check_budget(memory, 18'047),
      Catch::Contains("a replica takes 17.6 KiB (18,048 bytes), and its memory budget is 17.6 KiB (18,047 "
                      "bytes): most of it are optimizer slots, 7.81 KiB.") &&
          Catch::Contains("ShardedStrategy"));
  auto rows        = memory;
  rows.activations = 1'000'000;
  CHECK_THROWS_WITH(check_budget(rows, 18'047),
                    Catch::Contains("most of it are activations, 977 KiB") && Catch::Contains("nn::Recompute"));
}
