// SPDX-License-Identifier: Apache-2.0
//
// One model, one step, one file: compiled once for each STRATEGY of strategies.hpp. Each reduce over each transport
// that the front door lets through trains the model as the strategy promises; docs/30-compose.md says which do, and
// refused_test.py asks what the compiler says to the others.
#include "test/compose/exact_model.hpp"
#include "test/compose/strategies.hpp"
#include "test/support/reference.hpp"

#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string_view>
#include <type_traits>
#include <vector>

#define TEXT_OF(strategy) #strategy
#define NAMED(strategy, what) TEXT_OF(strategy) ": " what

namespace test_of::STRATEGY {

using namespace chorale;
using strategies::Promise;

constexpr auto promise = strategies::STRATEGY::promise;
using S                = decltype(strategies::STRATEGY::make());

/// Under R over T: trains as promised, where the front door lets it.
///
/// returns   1 when it does, else 0
template <class R, class T> int check(std::string_view name, T transport = {}) {
  INFO(name << ": " << __PRETTY_FUNCTION__);
  if constexpr (detail::fit_together<S, R, T>) {
    static auto const data     = tiny::uneven();
    static auto const expected = tiny::reference(data);
    auto trainer               = tiny::learner_under(strategies::STRATEGY::make(), R{}, transport);
    auto const epochs          = promise == Promise::equal ? 1 : 4;
    auto const history         = trainer.fit(data, {.epochs = epochs, .show = Show::nothing});
    CHECK(history.front().scores.rows() == 279);
    CHECK(trainer.evaluate(data).rows() == 279);
    for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
    auto const values = tiny::values_of(trainer);
    if constexpr (promise == Promise::learns) {
      CHECK(history.back().scores.loss() < history.front().scores.loss());
    } else if constexpr (requires { typename R::exact; }) {  // it rounds, or leaves out: as written down
      auto const devices = strategies::STRATEGY::make().local_devices();
      CHECK(values == tiny::values_by_model<R>(devices, data));
      if (devices.size() > 1) CHECK(tiny::difference(values, expected) > 1e-5);  // and it does
    } else {
      CHECK(tiny::difference(values, expected) < 1e-5);
    }
    return 1;
  } else {
    return 0;
  }
}

template <class T, class... R> int check_each(std::string_view name, T const& transport = {}) {
  return (check<R>(name, transport) + ...);
}

TEST_CASE(NAMED(STRATEGY, "every reduce that fits trains the model over threads"), "[compose]") {
  auto const trained = check_each<LocalTransport, RingAllReduce, DoubleTreeAllReduce, RecursiveDoublingAllReduce,
                                  ReduceToOne, AutoAllReduce, DirectAllReduce, HierarchicalAllReduce<>,
                                  Compressed<bf16>, Compressed<fp16>, TopK<500>, Reproducible<8>>("threads");
  CHECK(trained == strategies::STRATEGY::over_threads);
}

TEST_CASE(NAMED(STRATEGY, "every reduce that fits trains the model over the other transports"), "[compose]") {
  CHECK(check_each<SharedMemoryTransport, RingAllReduce, DirectAllReduce>("shared memory") == 2);
  CHECK(check_each<TcpTransport, RingAllReduce, DirectAllReduce>("TCP") == 1);  // no memory of peers
  if constexpr (!HasServers<S> && !std::is_same_v<S, OneDeviceStrategy<>>)
    CHECK(check_each<Layered<LocalTransport, LocalTransport>, RingAllReduce, HierarchicalAllReduce<>>(
              "layered", Layered<LocalTransport, LocalTransport>{.ranks_per_node = 2}) ==
          (shards_optimizer<S> ? 1 : 2));
}

/// The loop of examples/03_custom_loop, with this as the end of a step.
template <class End> void check_loop(int epochs, End const& end_step) {
  static auto const data     = tiny::uneven();
  static auto const expected = tiny::reference(data);
  auto const model           = tiny::learner();
  auto live                  = Live{strategies::STRATEGY::make(), RingAllReduce{}, LocalTransport{}};
  auto copies                = live.create(model, 7);
  auto means                 = std::vector<float>{};
  for (int epoch = 0; epoch < epochs; ++epoch) {
    auto loss = Sum<float>{};
    for (auto& batch : live.distribute(data, epoch)) {
      PerReplica<Sum<float>> losses = live.run(
          [&](auto& replica, auto& copy, auto& share) {
            if (replica.num_replicas() != live.num_replicas())
              throw Error{"a step counts other replicas than the job has"};
            auto [sum, gradients] = replica.value_and_gradient(copy, share);
            end_step(live, replica, copy, gradients);
            return sum;
          },
          copies, batch);
      loss += live.reduce(losses);
    }
    live.finish(copies);
    CHECK(loss.count == 279);
    means.push_back(loss.mean());
  }
  for (auto const& copy : copies) CHECK(copy.hash() == copies[0].hash());
  auto totals = Totals{};
  for (auto& batch : live.distribute(data))
    totals += live.reduce(live.run(
        [](auto&, auto& copy, auto& share) {
          auto sums = std::array<float, plan::header>{};
          copy.evaluate(share, sums);
          return Totals{} += sums;
        },
        copies, batch));
  CHECK(StepHeader{totals.sums}.rows() == 279);
  auto ranks = std::vector<Rank>{};
  for (Rank rank = 0; rank < live.num_replicas(); ++rank) ranks.push_back(rank);
  CHECK(live.gather(live.run([](auto& replica) { return replica.id(); })) == ranks);
  auto const values = copies[0].net.variables().body();
  if (epochs == 1) CHECK(tiny::difference({values.begin(), values.end()}, expected) < 1e-5);
  else CHECK(means.back() < means.front());
}

TEST_CASE(NAMED(STRATEGY, "a loop of one's own learns what the strategy promises"), "[compose]") {
  check_loop(promise == Promise::equal ? 1 : 4,
             [](auto& live, auto& replica, auto& copy, auto& gradients) { live.update(replica, copy, gradients); });
  if constexpr (!HasServers<S> && !shards_optimizer<S>)  // where this does not compile
    check_loop(1, [](auto&, auto& replica, auto& copy, auto& gradients) {
      replica.all_reduce(gradients);
      copy.optimizer.apply(copy.net.variables(), gradients);
    });
}

}  // namespace test_of::STRATEGY
