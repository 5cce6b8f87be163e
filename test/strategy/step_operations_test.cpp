// SPDX-License-Identifier: Apache-2.0
//
// What a step sends is what its list of operations says; and however gradients are cut into buckets, the bits under
// Reproducible are the same.
#include <chorale/data/elements.hpp>
#include <chorale/model/custom.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/reduce/bucketed.hpp>
#include <chorale/reduce/compressed.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace step_operations_test {

using namespace chorale;

using Row = BasicBatch<float, float>;

/// Gradients that are no whole numbers, and differ from row to row and step to step.
struct Waves {
  template <class Step> float operator()(Step& step, Row const& batch) const {
    auto loss = 0.0F;
    for (std::size_t r = 0; r < batch.rows; ++r)
      for (std::size_t v = 0; v < 4; ++v) {
        auto const values = step.value(v);
        auto const to     = step.gradient(v);
        for (std::size_t i = 0; i < values.size(); ++i) {
          to[i] += values[i] - 0.1F * batch.x[r] * static_cast<float>(i % 13 + v);
          loss += to[i] * to[i];
        }
      }
    return loss;
  }
};

/// 21,000 numbers in four layers: (30, 21), (9000), (7, 3) and (160, 71).
auto model(float clip = 0) {
  return custom_model<Row>({{"a/kernel", {30, 21}, Init::glorot_uniform},
                            {"b", {9000}, Init::ones},
                            {"c", {7, 3}},
                            {"d/kernel", {160, 71}, Init::glorot_uniform}},
                           Waves{}, optim::Adam{.learning_rate = 0.01F, .global_clipnorm = clip});
}

struct Trained {
  std::vector<float> values;  // after three steps, of the last rank
  std::vector<Sent> sent;     // by each rank, in the third
};

template <class S, class R, class M> Trained trained(S const& strategy, R const& reduce, M const& what) {
  auto live   = Live{strategy, reduce, Counting<LocalTransport>{}};
  auto copies = live.create(what, 7);
  auto sent   = PerReplica<Sent>(copies.size());
  auto x      = std::vector<float>(13);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::sin(static_cast<float>(i + 13 * static_cast<std::size_t>(step)));
    live.run(
        [&](auto& replica, auto& copy, Sent& to) {
          auto const rows   = share(x.size(), replica.id(), replica.num_replicas());
          auto const batch  = Row{.x           = Span<float const>{x}.subspan(rows.begin, rows.size()),
                                  .y           = {},
                                  .rows        = rows.size(),
                                  .first_row   = rows.begin,
                                  .global_rows = x.size()};
          auto const before = replica.sent();
          auto result       = replica.value_and_gradient_ahead(copy, batch);
          live.update(replica, copy, result.gradients);
          to = {replica.sent().messages - before.messages, replica.sent().bytes - before.bytes};
        },
        copies, sent);
  }
  auto const values = copies[copies.size() - 1].net.variables().values;
  return {{values.begin(), values.end()}, {sent.begin(), sent.end()}};
}

/// A step under a strategy sends what its operations say, on each rank; returns what was learned.
template <class S, class R> std::vector<float> check(S const& strategy, R const& reduce, float clip = 0) {
  auto const what       = model(clip);
  auto const operations = step_operations(what, strategy, reduce);
  INFO(operations.text());
  auto const done = trained(strategy, reduce, what);
  for (std::size_t rank = 0; rank < done.sent.size(); ++rank) {
    auto const said = operations.sent(static_cast<Rank>(rank));
    CAPTURE(rank, done.sent[rank].messages, done.sent[rank].bytes);
    REQUIRE(said);
    CHECK(said->messages == done.sent[rank].messages);
    CHECK(said->bytes == done.sent[rank].bytes);
  }
  return done.values;
}

double apart(std::vector<float> const& a, std::vector<float> const& b) {
  auto worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(a[i] - b[i])));
  return worst;
}

auto mirrored(int n) { return MirroredStrategy{Cpu::logical(n)}; }
auto sharded(int n) { return ShardedStrategy<Zero::one>{Cpu::logical(n)}; }

}  // namespace step_operations_test

using namespace step_operations_test;

TEST_CASE("a mirrored step sends what its operations say, however gradients are cut", "[strategy][operations]") {
  auto const n   = GENERATE(1, 2, 3, 4);
  auto const one = trained(OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, model()).values;
  CHECK(apart(check(mirrored(n), RingAllReduce{}), one) < 1e-5);
  CHECK(apart(check(mirrored(n), DirectAllReduce{}), one) < 1e-5);
  CHECK(apart(check(mirrored(n), HalvingDoublingAllReduce{}), one) < 1e-5);
  CHECK(apart(check(mirrored(n), Bucketed<RingAllReduce, OneBucket>{}), one) < 1e-5);
  CHECK(apart(check(mirrored(n), Bucketed<RingAllReduce, BucketPerLayer>{}), one) < 1e-5);
  CHECK(apart(check(mirrored(n), Bucketed<RingAllReduce, BucketBytes<4096>>{}), one) < 1e-5);
  CHECK(apart(check(mirrored(n), OwnThread<Bucketed<RingAllReduce, BucketCount<7>>>{}), one) < 1e-5);
}

TEST_CASE("a step of shards sends what its operations say, however gradients are cut", "[strategy][operations]") {
  auto const n    = GENERATE(1, 2, 3, 4);
  auto const clip = GENERATE(0.0F, 0.5F);
  auto const one  = trained(OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, model(clip)).values;
  CHECK(apart(check(sharded(n), RingAllReduce{}, clip), one) < 1e-5);
  CHECK(apart(check(sharded(n), DirectAllReduce{}, clip), one) < 1e-5);
  CHECK(apart(check(sharded(n), Bucketed<RingAllReduce, BucketCount<7>>{}, clip), one) < 1e-5);
}

TEST_CASE("under Reproducible no cut changes a bit", "[strategy][operations]") {
  auto const n   = GENERATE(2, 3, 4);
  auto const one = trained(OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, model(0.5F)).values;
  CHECK(check(mirrored(n), Reproducible<8>{}, 0.5F) == one);
  CHECK(check(mirrored(n), Bucketed<Reproducible<8>, BucketPerLayer>{}, 0.5F) == one);
  CHECK(check(mirrored(n), Bucketed<Reproducible<8>, BucketCount<5>>{}, 0.5F) == one);
  CHECK(check(sharded(n), Reproducible<8>{}, 0.5F) == one);
  CHECK(check(sharded(n), Bucketed<Reproducible<8>, BucketCount<5>>{}, 0.5F) == one);
}

TEST_CASE("a reduce that rounds sends header and trailer by themselves, however it is cut", "[strategy][operations]") {
  using Halves     = Bucketed<Compressed<bf16>, BucketCount<3>>;
  auto const lines = step_operations(model(), mirrored(2), Halves{}).lines();
  REQUIRE(lines.size() == 4);
  CHECK_THAT(lines[3], Catch::Contains("operation 3: all_reduce float[32] of 2 ranks by "));
  CHECK_FALSE(step_operations(model(), mirrored(2), Halves{}).sent(0));  // halves: Compressed alone knows
  auto const done = trained(mirrored(2), Halves{}, model()).values;
  CHECK(apart(done, trained(mirrored(2), RingAllReduce{}, model()).values) < 0.1);
}

TEST_CASE("buckets end where their cut says", "[strategy][operations]") {
  auto const what = model();  // | d | c | b | a |, each in lines of 16
  auto const plan = PlanView{what.plan};
  auto const ends = [&]<class C>(C) {
    return detail::bucket_ends<Bucketed<RingAllReduce, C>>(plan.variables, plan.ends(), plan.elements);
  };
  using Ends        = std::vector<std::size_t>;
  auto const layers = Ends{16 + 11'360, 16 + 11'360 + 32, 16 + 11'360 + 32 + 9'008, plan.elements};
  CHECK(plan.elements == 16 + 11'360 + 32 + 9'008 + 640 + 16);
  CHECK(ends(BucketPerLayer{}) == layers);
  CHECK(ends(OneBucket{}) == Ends{plan.elements});
  CHECK(ends(BucketBytes<1>{}) == layers);
  CHECK(ends(BucketBytes<4 * 11'376>{}) == Ends{layers[0], plan.elements});
  CHECK(ends(BucketBytes<4 * 11'377>{}) == Ends{layers[1], plan.elements});
  CHECK(ends(BucketBytes<std::size_t{1} << 30>{}) == Ends{plan.elements});
  auto const five = ends(BucketCount<5>{});
  REQUIRE(five.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(five[i] % 16 == 0);
    CHECK(std::abs(static_cast<double>(five[i]) -
                   static_cast<double>(plan.elements) * (static_cast<double>(i) + 1) / 5) < 16);
  }
  CHECK(ends(BucketCount<5000>{}).size() == plan.elements / 16);
}

TEST_CASE("operations are a value: a text, a hash, and lines that name the first that differs",
          "[strategy][operations]") {
  auto const four = step_operations(model(), mirrored(4), RingAllReduce{});
  CHECK(four == step_operations(model(), mirrored(4), RingAllReduce{}));
  CHECK(four.hash() == step_operations(model(), mirrored(4), RingAllReduce{}).hash());
  CHECK(four.lines() ==
        std::vector<std::string>{"operation 0: all_reduce float[11376] of 4 ranks by RingAllReduce: gradients",
                                 "operation 1: all_reduce float[9696] of 4 ranks by RingAllReduce: gradients"});
  for (auto const& other : {step_operations(model(), mirrored(3), RingAllReduce{}),
                            step_operations(model(), mirrored(4), HalvingDoublingAllReduce{}),
                            step_operations(model(), mirrored(4), Bucketed<RingAllReduce, BucketCount<2>>{}),
                            step_operations(model(), sharded(4), RingAllReduce{})}) {
    CHECK(four != other);
    CHECK(four.hash() != other.hash());
    CHECK(four.lines() != other.lines());
    CHECK_THAT(wire::first_difference(other.lines(), four.lines()), Catch::Contains("operation 0: all_reduce "));
  }
  auto const many = step_operations(model(), mirrored(2), Bucketed<RingAllReduce, BucketCount<659>>{});
  CHECK(many.all.size() == 659);
  CHECK(many.lines() ==
        std::vector<std::string>{
            "operation 0: all_reduce float[16] of 2 ranks by " + many.all[0].by + ": gradients",
            "operation 1: all_reduce float[32] of 2 ranks by " + many.all[0].by + ": gradients, 658 times"});
  CHECK(step_operations(model(), mirrored(1), RingAllReduce{}).text() == "no operation: one rank computes alone\n");
  auto const apart = step_operations(model(), LocalSgd<4, MirroredStrategy<>>{mirrored(2)}, RingAllReduce{});
  CHECK(apart.text() == "the operations of a step are not known before it\n");
  CHECK_FALSE(apart.sent(0));
}
