// SPDX-License-Identifier: Apache-2.0
//
// Workers that are processes, over TCP and over shared memory, against one replica with the whole batch.
#include "test/support/processes.hpp"
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <sstream>

using namespace chorale;
using chorale::test::Processes;
using chorale::test::Voice;
using tiny::quietly;

namespace {

Cluster cluster_of(std::vector<std::string> const& addresses, int me) {
  return Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
}

/// What a worker says in the end: its distance from the reference, a hash of its variables, rows, loss and predictions.
struct Report {
  double apart = 0, loss = 0, predicted = 0;
  std::uint64_t hash = 0;
  std::size_t rows   = 0;
};

template <class Trainer> void report(Trainer trainer, Voice voice) {
  auto const data   = tiny::uneven();
  auto const fitted = trainer.fit(data, quietly)[0].scores;
  auto const tested = trainer.evaluate(data);
  auto sum          = 0.0;
  auto const all    = trainer.predict(data);
  for (std::size_t i = 0; i < all.values.size(); ++i) sum += static_cast<double>(i + 1) * all.values[i];
  auto line = std::ostringstream{};
  line.precision(17);
  line << tiny::difference(tiny::values_of(trainer), tiny::reference(data)) << ' ' << tested.loss() << ' ' << sum << ' '
       << trainer.hashes()[0] << ' ' << fitted.rows() + tested.rows() + all.rows();
  voice.say(line.str());
}

std::vector<Report> reports(Processes& processes, int n) {
  auto all = std::vector<Report>{};
  for (int i = 0; i < n; ++i) {
    auto const line = processes.line(i);
    INFO("worker " << i << ": " << line);
    auto text = std::istringstream{line};
    auto one  = Report{};
    text >> one.apart >> one.loss >> one.predicted >> one.hash >> one.rows;
    CHECK(text);
    CHECK(processes.exit(i) == 0);
    all.push_back(one);
  }
  return all;
}

void expect_equal(std::vector<Report> const& all) {
  auto const data = tiny::uneven();
  auto one        = tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]});
  one.fit(data, quietly);
  auto sum             = 0.0;
  auto const predicted = one.predict(data);
  for (std::size_t i = 0; i < predicted.values.size(); ++i) sum += static_cast<double>(i + 1) * predicted.values[i];
  for (auto const& r : all) {
    CHECK(r.apart < 1e-5);
    CHECK(r.hash == all[0].hash);
    CHECK(r.rows == 3 * 279);
    CHECK(r.loss == Approx(one.evaluate(data).loss()).epsilon(1e-5));
    CHECK(r.loss == all[0].loss);
    CHECK(r.predicted == Approx(sum).epsilon(1e-4));
    CHECK(r.predicted == all[0].predicted);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("workers that are processes learn, evaluate and predict what one replica does",
                   "[strategy][multi_worker][processes]", TcpTransport, SharedMemoryTransport) {
  auto const workers   = GENERATE(2, 3, 4);
  auto const addresses = free_loopback_addresses(workers);
  auto processes =
      Processes{workers, [&](int me, Voice voice) {
                  report(tiny::learner_under(MultiWorkerMirroredStrategy{cluster_of(addresses, me), Cpu::logical(1)},
                                             RingAllReduce{}, TestType{}),
                         voice);
                }};
  expect_equal(reports(processes, workers));
}

TEST_CASE("workers of two devices each learn what one replica learns: threads within, TCP between",
          "[strategy][multi_worker][processes]") {
  auto const addresses = free_loopback_addresses(2);
  auto processes =
      Processes{2, [&](int me, Voice voice) {
                  report(tiny::learner_under(MultiWorkerMirroredStrategy{cluster_of(addresses, me), Cpu::logical(2)},
                                             HierarchicalAllReduce{}, Layered<LocalTransport, TcpTransport>{}),
                         voice);
                }};
  expect_equal(reports(processes, 2));
}

TEMPLATE_TEST_CASE("with fixed trees, processes have the bits of one replica",
                   "[strategy][multi_worker][reproducible][processes]", TcpTransport, SharedMemoryTransport) {
  auto const workers   = GENERATE(2, 3);
  auto const addresses = free_loopback_addresses(workers);
  auto processes =
      Processes{workers, [&](int me, Voice voice) {
                  report(tiny::learner_under(MultiWorkerMirroredStrategy{cluster_of(addresses, me), Cpu::logical(1)},
                                             Reproducible<8>{}, TestType{}),
                         voice);
                }};
  auto one = tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{});
  one.fit(tiny::uneven(), quietly);
  for (auto const& r : reports(processes, workers)) CHECK(r.hash == one.hashes()[0]);
}

TEST_CASE("replicas that learn apart may be processes", "[strategy][local_sgd][processes]") {
  auto const addresses = free_loopback_addresses(2);
  auto processes       = Processes{
      2, [&](int me, Voice voice) {
        report(
            tiny::learner_under(local_sgd<1>(MultiWorkerMirroredStrategy{cluster_of(addresses, me), Cpu::logical(1)}),
                                      RingAllReduce{}, TcpTransport{}),
            voice);
      }};
  expect_equal(reports(processes, 2));
}

TEST_CASE("the chief saves and loads, and all workers have what it read", "[strategy][multi_worker][processes]") {
  auto const addresses = free_loopback_addresses(2);
  auto const folder    = chorale::test::Folder{};
  auto const file      = folder / "weights";
  auto processes =
      Processes{2, [&](int me, Voice voice) {
                  auto strategy = MultiWorkerMirroredStrategy{cluster_of(addresses, me), Cpu::logical(1)};
                  auto trainer  = tiny::learner_under(strategy, RingAllReduce{}, TcpTransport{});
                  trainer.fit(tiny::uneven(), quietly);
                  auto const before = trainer.hashes()[0];
                  trainer.save(me == 0 ? file : "/nowhere/nobody/writes/here");  // only the chief looks at the path
                  trainer.fit(tiny::uneven(), quietly);
                  auto const after = trainer.hashes()[0];
                  trainer.load(me == 0 ? file : "/nowhere/nobody/reads/here");
                  voice.say(before != after && trainer.hashes()[0] == before ? "same" : "other");
                }};
  for (int i = 0; i < 2; ++i) {
    CHECK(processes.line(i) == "same");
    CHECK(processes.exit(i) == 0);
  }
}

TEST_CASE("when the chief cannot read, all workers are told why", "[strategy][multi_worker][processes]") {
  auto const addresses = free_loopback_addresses(2);
  auto processes       = Processes{2, [&](int me, Voice) {
                               auto strategy = MultiWorkerMirroredStrategy{cluster_of(addresses, me), Cpu::logical(1)};
                               tiny::learner_under(strategy, RingAllReduce{}, TcpTransport{}).load("/nowhere/at/all");
                             }};
  for (int i = 0; i < 2; ++i) CHECK(processes.line(i).find("/nowhere/at/all") != std::string::npos);
  CHECK(processes.exit(0) == 2);
  CHECK(processes.exit(1) == 2);
}

TEST_CASE("tasks that a strategy cannot use are refused", "[strategy][multi_worker]") {
  auto const with_servers = Cluster::at({.workers = {"127.0.0.1:2001"}, .servers = {"127.0.0.1:2002"}});
  CHECK_THROWS_WITH(MultiWorkerMirroredStrategy{with_servers}, Catch::Contains("cannot use the 1 parameter servers"));
  auto const evaluator =
      Cluster::at({.workers = {"127.0.0.1:2001"}, .evaluators = {"127.0.0.1:2002"}, .me = {Role::evaluator, 0}});
  CHECK_THROWS_WITH(MultiWorkerMirroredStrategy{evaluator}, Catch::Contains("evaluator 0, which trains nothing"));
  auto const near = Cluster::at({.workers = {"127.0.0.1:2001", "127.0.0.1:3001"}});
  CHECK_THROWS_WITH((MultiWorkerMirroredStrategy{near, Cpu::logical(2)}.group()),
                    Catch::Contains("device 0 of the worker at 127.0.0.1:3001 would listen at 127.0.0.1:3001, where"));
}
