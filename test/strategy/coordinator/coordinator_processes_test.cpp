// SPDX-License-Identifier: Apache-2.0
//
// A coordinator, workers and servers as processes over TCP, of which some are killed.
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/coordinator.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <new>
#include <set>
#include <sstream>
#include <tuple>

namespace coordinator_processes_test {

using namespace chorale;
using chorale::test::Processes;
using chorale::test::Voice;

namespace {

constexpr int coordinator_rank = 0, workers = 3, servers = 2, ranks = 1 + workers + servers;
constexpr int closures = 200;

using Batch = BasicBatch<float, int>;

/// Processes: the coordinator, workers, servers.
struct SixTasks {
  std::vector<std::string> at = free_loopback_addresses(ranks);

  Cluster cluster(int process) const {
    auto const is_worker = process <= workers;
    auto const first     = at.begin() + 1 + workers;  // of the servers
    return Cluster::at({.workers = {at.begin(), first},
                        .servers = {first, at.end()},
                        .me      = {is_worker ? Role::worker : Role::ps, is_worker ? process : process - workers - 1},
                        .job     = "test-" + at[0]});
  }
};

/// What a closure reports: who ran it, and which batch it learned from.
struct Ran {
  int number, worker;
  std::int64_t label;
};

/// Batches of one row; its label counts from 1000 times the share.
PerWorkerDataset<Batch> numbered() {
  return {"numbered", [](WorkerShare share) {
            auto data = tiny::Batches<int>{tiny::batch<int>(closures, 64, 1), std::vector<std::size_t>(closures, 1)};
            for (int i = 0; i < closures; ++i) data.rows.y[static_cast<std::size_t>(i)] = 1'000 * share.index + i;
            return data;
          }};
}

/// A number that all processes see which are made while it lives.
class SharedCount {
 public:
  SharedCount()
      : at_{::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)} {
    if (at_ == MAP_FAILED) throw Error{"no memory for a test's number"};
    new (at_) std::atomic<int>{0};
  }
  ~SharedCount() { ::munmap(at_, sizeof(std::atomic<int>)); }
  SharedCount(SharedCount const&)            = delete;
  SharedCount& operator=(SharedCount const&) = delete;

  std::atomic<int>& operator*() const { return *static_cast<std::atomic<int>*>(at_); }

 private:
  void* at_;
};

/// Lives as one process of the job. Worker `victim` says in its fifth closure that it is there, and waits to be killed;
/// until then others run 20 each at most, and one at least.
///
/// came    workers that have run a closure; 100 more when the victim is there
void live(SixTasks const& job, int me, Voice voice, int victim, std::atomic<int>& came) {
  auto const data   = numbered();
  auto const work   = Closure{"work", [&, mine = 0](auto& here, WorkerStream<Batch>& batches, int number) mutable {
                              auto batch = Batch{};
                              if (!batches.next(batch)) throw Error{"no more batches"};
                              auto const label = batch.y[0];
                              auto const y     = std::array{label % 3};  // a class
                              batch.y          = y;
                              here.step(batch);
                              if (++mine == 1) ++came;
                              if (here.index() != victim && mine == 20) spin_until([&] { return came >= 100; });
                              if (here.index() == victim && mine == 5) {
                                spin_until([&] { return came >= workers; });
                                came += 100;
                                voice.say("there");
                                for (;;) ::pause();
                              }
                              return Ran{number, here.index(), label};
                            }};
  auto const report = coordinate(
      ParameterServerStrategy{job.cluster(me)}, tiny::learner(), TcpTransport{.log = [](std::string const&) {}},
      std::tuple{work, data}, [&](auto& coordinator, auto&) {
        auto const batches = coordinator.create_per_worker_dataset(data);
        auto results       = std::vector<RemoteValue<Ran>>{};
        for (int i = 0; i < closures; ++i) results.push_back(coordinator.schedule(work, batches, i));
        coordinator.join();
        auto seen      = std::vector<std::int64_t>{};
        auto same      = true;
        auto of_victim = 0;
        for (int i = 0; i < closures; ++i) {
          auto const ran = coordinator.fetch(results[static_cast<std::size_t>(i)]);
          same &= ran.number == i;
          of_victim += ran.worker == victim ? 1 : 0;
          seen.push_back(ran.label);
        }
        std::ranges::sort(seen);
        auto const apart = std::ranges::adjacent_find(seen) == seen.end();
        auto holes       = 0;  // batches that were left out in some share
        for (std::size_t i = 1; i < seen.size(); ++i)
          if (seen[i] / 1'000 == seen[i - 1] / 1'000 && seen[i] != seen[i - 1] + 1) ++holes;
        auto line = std::ostringstream{};
        line << "results " << seen.size() << " own " << same << " data_once " << apart << " holes " << holes << " lost "
             << coordinator.lost() << " repeated " << coordinator.repeated() << " of_victim " << of_victim;
        voice.say(line.str());
      });
  for (auto const& one : report)
    voice.say("applied " + std::to_string(one.ledger.applied) + " lost " + std::to_string(one.ledger.lost));
}

}  // namespace

TEST_CASE("a worker killed in a closure is only missed: all results are there, none twice",
          "[strategy][coordinator][processes]") {
  auto const victim = GENERATE(-1, 0, 2);  // -1: nobody
  auto const job    = SixTasks{};
  auto const came   = SharedCount{};
  *came             = victim < 0 ? 100 : 0;
  auto processes    = Processes{ranks, [&](int me, Voice voice) { live(job, me, voice, victim, *came); }};
  auto const lost   = victim < 0 ? "0" : "1";
  if (victim >= 0) {
    CHECK(processes.line(1 + victim) == "there");
    processes.send(1 + victim, SIGKILL);
  }
  CHECK(processes.line(coordinator_rank) == std::string{"results 200 own 1 data_once 1 holes 0 lost "} + lost +
                                                " repeated " + lost + " of_victim " + (victim < 0 ? "0" : "4"));
  auto const applied = closures + (victim < 0 ? 0 : 1);  // the lost attempt's only push was whole
  for (int server = 0; server < servers; ++server)
    CHECK(processes.line(1 + workers + server) == "applied " + std::to_string(applied) + " lost " + lost);
  for (int rank = 0; rank < ranks; ++rank)
    CHECK(processes.exit(rank) == (victim >= 0 && rank == 1 + victim ? 128 + SIGKILL : 0));
}

TEST_CASE("a killed coordinator, or server, ends the job with a PeerLost in every process that needs it",
          "[strategy][coordinator][processes]") {
  auto const killed = GENERATE(as<int>{}, coordinator_rank, 1 + workers);
  auto const job    = SixTasks{};
  auto processes    = Processes{ranks, [&](int me, Voice voice) {
                               auto const pull = Closure{"pull", [](auto& here) {
                                                           here.pull();
                                                           return here.index();
                                                         }};
                               coordinate(ParameterServerStrategy{job.cluster(me)}, tiny::learner(),
                                             TcpTransport{.log = [](std::string const&) {}}, std::tuple{pull},
                                             [&](auto& coordinator, auto&) {
                                            auto all = std::vector<RemoteValue<int>>{};
                                            for (auto seen = std::set<int>{}; seen.size() < workers;
                                                 all.clear()) {  // all workers and servers have come
                                              for (int i = 0; i < 2 * workers; ++i)
                                                all.push_back(coordinator.schedule(pull));
                                              for (auto const worker : coordinator.fetch(all)) seen.insert(worker);
                                            }
                                            voice.say("there");
                                            for (;;) coordinator.schedule(pull);
                                          });
                             }};
  CHECK(processes.line(coordinator_rank) == "there");
  processes.send(killed, SIGKILL);
  for (int rank = 0; rank <= workers; ++rank) {
    auto const said = processes.line(rank);
    INFO("rank " << rank << " said " << said);
    CHECK(processes.exit(rank) == (rank == killed ? 128 + SIGKILL : 138));
    if (rank == killed) continue;
    auto const whom = killed == 0 ? "lost rank 0" : "is gone";
    CHECK_THAT(said, Catch::Contains(whom) || Catch::Contains("all 3 workers are lost"));
  }
  for (int rank = 1 + workers; rank < ranks; ++rank)
    CHECK(processes.exit(rank) == (rank == killed ? 128 + SIGKILL : 0));
}

}  // namespace coordinator_processes_test
