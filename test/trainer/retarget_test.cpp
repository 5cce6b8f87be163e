// SPDX-License-Identifier: Apache-2.0
//
// A run that changes its strategy and its number of ranks has the bits of one that never does.
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/trainer/retarget.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

auto adam() {
  return nn::compile<tiny::Small>(loss::SparseCrossEntropy{},
                                  optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.5F});
}
FitOptions epoch(int i) { return {.epochs = i + 1, .initial_epoch = i, .show = Show::nothing}; }

auto mirrored(int n) { return MirroredStrategy{Cpu::logical(n)}; }
auto sharded(int n) { return ShardedStrategy<Zero::one>{Cpu::logical(n)}; }

/// The variables, which all replicas have.
template <class Trainer> std::vector<float> bits_of(Trainer& trainer) {
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  return tiny::values_of(trainer);
}

std::vector<float> never_changed(int epochs) {
  auto trainer = Trainer{adam(), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, LocalTransport{}, 7};
  trainer.fit(tiny::uneven(), {.epochs = epochs, .show = Show::nothing});
  return bits_of(trainer);
}

/// Bytes of the shards of ranks [first, world) of the variables' body.
std::size_t shards(int first, int world) {
  auto whole   = Trainer{adam(), OneDeviceStrategy{}};
  auto const n = whole.copies()[0].gradients().body().size();
  auto sum     = std::size_t{0};
  for (int rank = first; rank < world; ++rank) sum += placement::Shard{rank, world}.of(n).size();
  return sum * sizeof(float);
}

}  // namespace

TEST_CASE("lines of another rank from which ranks and ranges are taken are compared first", "[trainer][retarget]") {
  using Lines      = std::vector<detail::HeldLine>;
  auto const check = [](Lines const& lines) {
    auto teller = std::vector<int>{0, -1};  // rank 0 has told of old rank 0
    detail::expect_lines(lines, 1, 2, teller);
    return teller;
  };
  CHECK(check({{1, 3, 0, 0, 8, 1}, {1, 3, 1, 8, 8, 1}, {0, 1, 0, 0, 8, 1}}) == std::vector<int>{0, -1, -1, 1});
  CHECK_THROWS_WITH(check({{0, 5, 0, 0, 8, 1}}),
                    Catch::Contains("rank 1 of 2 tells that new rank 5 has elements 0 to 8 of array 0, of which"));
  for (auto const& line : Lines{{1, 0, 0, 0, 8, 1},
                                {1, 3, 0, 0, 8, 0},
                                {1, -1, 0, 0, 8, 1},
                                {1, 65'536, 0, 0, 8, 1},
                                {1, 3, -1, 0, 8, 1},
                                {1, 3, 1LL << 32, 0, 8, 1},
                                {1, 3, 0, 9, 8, 1},
                                {1, 3, 0, -1, 8, 1},
                                {2, 1, 0, 0, 8, 1},
                                {0, 0, 0, 0, 8, 1}})
    CHECK_THROWS_AS(check({line}), Disagreement);
}

TEST_CASE("a run that changes strategy and ranks has the bits of one that does not", "[trainer][retarget]") {
  auto const data = tiny::uneven();
  auto moved      = Moved{};
  auto const r    = Reproducible<8>{};
  auto const t    = LocalTransport{};
  auto first      = Trainer{adam(), mirrored(2), r, t, 7};
  first.fit(data, epoch(0));
  auto const values = first.variables().body().size_bytes();
  auto second       = retarget(std::move(first), sharded(3), r, t, &moved);
  CHECK(second.step() == 20);
  CHECK(moved.bytes == values + 2 * shards(2, 3));  // the third rank alone gets something
  CHECK(moved.kept == 2 * values + 2 * shards(0, 3) - 2 * shards(2, 3));
  second.fit(data, epoch(1));
  auto third = retarget(std::move(second), mirrored(4), r, t, &moved);
  CHECK(moved.bytes == values + 2 * (4 * shards(0, 3) - shards(0, 3)));  // two slots; each rank has its shard
  third.fit(data, epoch(2));
  auto fourth = retarget(std::move(third), CentralStorageStrategy{Cpu::logical(2)}, r, t, &moved);
  CHECK(moved.bytes == 0);
  fourth.fit(data, epoch(3));
  auto fifth = retarget(std::move(fourth), sharded(5), r, t, &moved);
  fifth.fit(data, epoch(4));
  auto last = retarget(std::move(fifth), OneDeviceStrategy{Cpu::logical(1)[0]}, r, t, &moved);
  CHECK(moved.bytes == 0);  // all five shards are in this process
  last.fit(data, epoch(5));
  CHECK(last.step() == 120);
  CHECK(bits_of(last) == never_changed(6));
}

TEST_CASE("a run changes its transport, and grows over messages", "[trainer][retarget][tcp]") {
  auto const data = tiny::uneven();
  auto moved      = Moved{};
  auto const over = [](int n) { return MultiWorkerMirroredStrategy{Cluster::local(n), Cpu::logical(1)}; };
  auto first      = Trainer{adam(), over(2), Reproducible<8>{}, TcpTransport{}, 7};
  first.fit(data, epoch(0));
  auto second = retarget(std::move(first), ShardedStrategy<Zero::one>{Cluster::local(2), Cpu::logical(1)},
                         Reproducible<8>{}, SharedMemoryTransport{}, &moved);
  CHECK(moved.bytes == 0);
  second.fit(data, epoch(1));
  auto third = retarget(std::move(second), over(4), Reproducible<8>{}, Counting<TcpTransport>{}, &moved);
  CHECK(moved.moves == 2 * 2 + 2 * 2 + 2 * 2 * 2);  // halves of values; two slots
  third.fit(data, epoch(2));
  CHECK(bits_of(third) == never_changed(3));
}

TEST_CASE("replicas that learn apart come together before they change", "[trainer][retarget]") {
  auto apart = Trainer{adam(), local_sgd<3>(mirrored(2)), RingAllReduce{}, LocalTransport{}, 7};
  apart.fit(tiny::some(4), {.show = Show::nothing});
  auto const rate = 0.125F;
  apart.set_learning_rate(rate);
  auto const before = bits_of(apart);
  auto together     = retarget(std::move(apart), mirrored(3), RingAllReduce{}, LocalTransport{});
  CHECK(bits_of(together) == before);
  CHECK(together.learning_rate() == rate);
  CHECK_THROWS_WITH(apart.fit(tiny::some(1), tiny::quietly), Catch::Contains("has left its job of 2 replicas"));
}

TEST_CASE("mirrored variables are cut into shards and come together again", "[trainer][retarget][sharded]") {
  auto const data = tiny::uneven();
  auto moved      = Moved{};
  auto first      = Trainer{adam(), mirrored(2), Reproducible<8>{}, LocalTransport{}, 7};
  first.fit(data, epoch(0));
  auto const values = first.variables().body().size_bytes();
  auto second       = retarget(std::move(first), ShardedStrategy<Zero::three>{Cpu::logical(2)}, Reproducible<8>{},
                               LocalTransport{}, &moved);
  CHECK(moved.bytes == 0);  // each has its shard already
  second.fit(data, epoch(1));
  auto third = retarget(std::move(second), mirrored(4), Reproducible<8>{}, LocalTransport{}, &moved);
  CHECK(moved.bytes == 3 * (4 * values - values));  // variables and two slots, without what is there
  third.fit(data, epoch(2));
  auto fourth = retarget(std::move(third), ShardedStrategy<Zero::two>{Cpu::logical(3)}, Reproducible<8>{},
                         LocalTransport{}, &moved);
  CHECK(moved.bytes == 0);
  fourth.fit(data, epoch(3));
  auto fifth =
      retarget(std::move(fourth), ShardedStrategy<Zero::three>{Cpu::logical(5)}, Reproducible<8>{}, LocalTransport{});
  fifth.fit(data, epoch(4));
  CHECK(tiny::values_of(fifth) == never_changed(5));  // hashes() are those of shards
}

TEST_CASE("processes join a run that goes on", "[trainer][retarget][processes]") {
  auto const before = free_loopback_addresses(2), after = free_loopback_addresses(3);
  auto processes = chorale::test::Processes{
      3, [&](int me, chorale::test::Voice voice) {
        auto const cluster_of = [&](std::vector<std::string> const& addresses) {
          return Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
        };
        auto const larger = ShardedStrategy<Zero::one>{cluster_of(after), Cpu::logical(1)};
        auto moved        = Moved{};
        auto const go_on  = [&](auto trainer) {
          trainer.fit(tiny::uneven(), epoch(1));
          voice.say(std::to_string(trainer.hashes()[0]) + " " + std::to_string(trainer.step()) + " " +
                     std::to_string(moved.bytes));
        };
        if (me == 2) return go_on(join_retargeted(adam(), larger, Reproducible<8>{}, TcpTransport{}, 7, &moved));
        auto first = Trainer{adam(), MultiWorkerMirroredStrategy{cluster_of(before), Cpu::logical(1)},
                             Reproducible<8>{}, TcpTransport{}, 7};
        first.fit(tiny::uneven(), epoch(0));
        go_on(retarget(std::move(first), larger, Reproducible<8>{}, TcpTransport{}, &moved));
      }};
  auto one = Trainer{adam(), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, LocalTransport{}, 7};
  one.fit(tiny::uneven(), {.epochs = 2, .show = Show::nothing});
  auto const bytes = one.variables().body().size_bytes() + 2 * shards(2, 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(processes.line(i) == std::to_string(one.hashes()[0]) + " 40 " + std::to_string(bytes));
    CHECK(processes.exit(i) == 0);
  }
}

namespace {

auto workers_at(std::vector<std::string> const& addresses, int me) {
  return Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
}
/// Workers that know where the first one listens, and nothing else.
auto workers_meeting_at(std::string const& first, int n, int me) {
  auto parts =
      ClusterParts{.me = {Role::worker, me}, .job = "test-" + first, .no_addresses = "they meet", .meets_at = first};
  for (int i = 0; i < n; ++i) parts.tasks.push_back({{Role::worker, i}});
  return Cluster{std::move(parts)};
}
auto worker(Cluster cluster) { return MultiWorkerMirroredStrategy{std::move(cluster), Cpu::logical(1)}; }
auto sharded_worker(Cluster cluster) { return ShardedStrategy<Zero::one>{std::move(cluster), Cpu::logical(1)}; }
auto never_changed_hash(int epochs) {
  auto trainer = Trainer{adam(), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, LocalTransport{}, 7};
  trainer.fit(tiny::uneven(), {.epochs = epochs, .show = Show::nothing});
  return std::to_string(trainer.hashes()[0]);
}

/// A callback that wants to go on elsewhere in the middle of fit.
struct Impatient {
  int asked = 0;

  void on_epoch_end(auto& trainer, int, Epoch&) {
    CHECK_THROWS_WITH(retarget(std::move(trainer), mirrored(2), Reproducible<8>{}, LocalTransport{}),
                      Catch::Contains("in fit, evaluate or predict"));
    ++asked;
  }
};

/// Tries every way in which new parts refuse that all are in this process.
template <class Trainer> void refuse_in_turn(Trainer& trainer) {
  auto const r         = Reproducible<8>{};
  auto const elsewhere = worker(workers_at({"127.0.0.1:1", "127.0.0.1:2"}, 0));
  CHECK_THROWS_WITH(retarget(std::move(trainer), elsewhere, r, LocalTransport{}),
                    Catch::Contains("connects threads of one process"));
  CHECK_THROWS_AS(retarget(std::move(trainer), sharded(2), r, SharedMemoryTransport{.arena = std::size_t{1} << 46}),
                  OutOfMemory);
  auto const addresses = std::vector<std::string>{"203.0.113.1:9", "203.0.113.1:10"};  // not of this host
  CHECK_THROWS_AS(retarget(std::move(trainer), mirrored(2), r, TcpTransport{.addresses = addresses}), BadArgument);
}

}  // namespace

TEST_CASE("a trainer whose retarget is refused is as it was", "[trainer][retarget]") {
  auto const data = tiny::uneven();
  auto const same = [&](auto trainer_under, bool has_whole_copies) {
    auto trainer   = trainer_under();
    auto impatient = Impatient{};
    trainer.fit(data, epoch(0), impatient);
    CHECK(impatient.asked == 1);
    auto const before  = tiny::values_of(trainer);
    auto const answers = trainer.predict(data).values;
    refuse_in_turn(trainer);
    CHECK(trainer.step() == 20);
    CHECK(tiny::values_of(trainer) == before);
    CHECK(trainer.predict(data).values == answers);
    auto const folder = chorale::test::Folder{};
    trainer.save(folder.path / "weights.safetensors");
    auto other = Trainer{adam(), OneDeviceStrategy{}};
    other.load(folder.path / "weights.safetensors");
    CHECK(tiny::values_of(other) == before);
    trainer.fit(data, epoch(1));
    if (has_whole_copies) CHECK(bits_of(trainer) == never_changed(2));
    else CHECK(tiny::values_of(trainer) == never_changed(2));
    auto last = retarget(std::move(trainer), mirrored(3), Reproducible<8>{}, LocalTransport{});
    last.fit(data, epoch(2));
    CHECK(bits_of(last) == never_changed(3));
    CHECK_THROWS_WITH(trainer.save(folder.path / "old"), Catch::Contains("has left its job"));
    CHECK_THROWS_WITH(retarget(std::move(trainer), mirrored(3), Reproducible<8>{}, LocalTransport{}),
                      Catch::Contains("has left its job"));
  };
  same([] { return Trainer{adam(), mirrored(2), Reproducible<8>{}, LocalTransport{}, 7}; }, true);
  auto const shards = ShardedStrategy<Zero::three>{Cpu::logical(3)};
  same([&] { return Trainer{adam(), shards, Reproducible<8>{}, LocalTransport{}, 7}; }, false);
}

TEST_CASE("what one process refuses, all hear at once, and all stay as they were", "[trainer][retarget][processes]") {
  auto const before = free_loopback_addresses(2), after = free_loopback_addresses(2);
  auto processes = chorale::test::Processes{
      2, [&](int me, chorale::test::Voice voice) {
        auto old = Trainer{adam(), worker(workers_at(before, me)), Reproducible<8>{}, TcpTransport{}, 7};
        old.fit(tiny::uneven(), epoch(0));
        auto const go_on = [&](auto const& strategy, auto const& transport) {
          try {
            retarget(std::move(old), strategy, Reproducible<8>{}, transport);
          } catch (BadArgument const& error) { voice.say(error.what()); }
        };
        auto const elsewhere = me == 0 ? after : std::vector{after[0], std::string{"203.0.113.1:9"}};
        go_on(sharded_worker(workers_at(after, me)), TcpTransport{.addresses = elsewhere});
        go_on(sharded_worker(workers_at(after, me)), SharedMemoryTransport{.ring = me == 0 ? 0U : 1U});
        old.fit(tiny::uneven(), epoch(1));
        auto last = retarget(std::move(old), worker(workers_at(before, me)), Reproducible<8>{}, TcpTransport{});
        last.fit(tiny::uneven(), epoch(2));  // with the addresses of the old job
        voice.say(std::to_string(last.hashes()[0]));
      }};
  for (int me = 0; me < 2; ++me)
    for (auto const* why :
         {"a rank that listens on 203.0.113.1 can be reached", "ring is a multiple of 8192 bytes, got 1"}) {
      auto const line = processes.line(me);
      CHECK_THAT(line, Catch::Contains(why));
      CHECK((me == 1 || line.find("rank 1 cannot go on in the new job, so all stay in the old one") != line.npos));
    }
  auto const hash = never_changed_hash(3);
  for (int me = 0; me < 2; ++me) {
    CHECK(processes.line(me) == hash);
    CHECK(processes.exit(me) == 0);
  }
}

TEST_CASE("a process that dies while the new job is joined is named at once", "[trainer][retarget][processes]") {
  for (auto const* how : {"TCP", "shared memory", "a meeting"}) {
    INFO("joined over " << how);
    auto const before = free_loopback_addresses(2), after = free_loopback_addresses(3);
    auto const folder = chorale::test::Folder{};
    auto processes    = chorale::test::Processes{
        2, [&](int me, chorale::test::Voice voice) {
          auto old = Trainer{adam(), worker(workers_at(before, me)), Reproducible<8>{}, TcpTransport{}, 7};
          old.fit(tiny::uneven(), epoch(0));
          auto const way   = std::string{how};
          auto const tells = [&](std::string const& line) {  // that the other one has joined
            if (line.find("for 1 of 3: rank 2") != line.npos ||
                line.find("1 of 3 members did not come: 2") != line.npos)
              voice.say("waiting");
          };
          auto const tcp   = TcpTransport{.report_every = std::chrono::milliseconds{5}, .log = tells};
          auto const go_on = [&](Cluster cluster, auto transport) {
            retarget(std::move(old), sharded_worker(std::move(cluster)), Reproducible<8>{}, transport);
          };
          if (way == "shared memory") voice.say("waiting");
          try {
            if (way == "TCP") go_on(workers_at(after, me), tcp);
            if (way == "shared memory") go_on(workers_at(after, me), SharedMemoryTransport{});
            if (way == "a meeting") go_on(workers_meeting_at(after[0], 3, me), tcp);
          } catch (PeerLost const& error) {
            old.save(folder / "weights.safetensors");
            voice.say("lost " + std::to_string(error.rank()) + " after " + std::to_string(old.step()));
          }
        }};
    processes.expect(0, "waiting");
    processes.send(1, SIGKILL);
    processes.expect(0, "lost 1 after 20");
    CHECK(processes.exit(0) == 0);
    CHECK(std::filesystem::exists(folder / "weights.safetensors"));
  }
}
