// SPDX-License-Identifier: Apache-2.0
//
// A run that was cut off goes on with the bits of one that was not, whatever strategy or number of replicas goes on.
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/core/end_on_signal.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/trainer/callbacks.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>

namespace resume_test {

using namespace chorale;
using chorale::test::Processes;
using chorale::test::Voice;
using tiny::quietly;

namespace {

/// Checkpoints in a folder of the test's.
struct Folder : chorale::test::Folder {
  FitOptions options(int epochs, std::size_t every = 0) const {
    return {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = path}, .checkpoint_every = every};
  }
};

/// Adam, whose state matters, dropout, which depends on the step, and fixed trees: the bits are those of any world.
template <class S, class T = LocalTransport> auto learner(S strategy, T transport = {}) {
  return Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}), strategy,
                 Reproducible<8>{}, transport, 7};
}

/// Data that ends the run with an exception after some batches of all.
struct CutOff {
  using element = BasicBatch<float, int>;
  struct Off {};

  tiny::Batches<int> whole = tiny::uneven();
  std::shared_ptr<int> left;

  struct Stream {
    tiny::Batches<int>::Stream from;
    std::shared_ptr<int> left;
    bool next(element& batch) {
      if ((*left)-- == 0) throw Off{};
      return from.next(batch);
    }
  };
  Stream stream(std::size_t epoch) const { return {whole.stream(epoch), left}; }
  std::optional<std::size_t> size() const { return whole.size(); }
};

}  // namespace

TEST_CASE("a run that is cut off anywhere goes on under another strategy with the same bits", "[trainer][resume]") {
  auto const data             = tiny::uneven();  // 20 batches
  auto undisturbed            = learner(MirroredStrategy{Cpu::logical(2)});
  auto const whole            = undisturbed.fit(data, {.epochs = 3, .show = Show::nothing});
  auto const [batches, every] = GENERATE(
      table<int, std::size_t>({{0, 3}, {2, 3}, {3, 3}, {19, 3}, {25, 3}, {47, 3}, {5, 0}, {20, 0}, {21, 0}, {45, 0}}));
  auto const folder = Folder{};
  auto first        = learner(MirroredStrategy{Cpu::logical(3)});
  CHECK_THROWS_AS(first.fit(CutOff{.left = std::make_shared<int>(batches)}, folder.options(3, every)), CutOff::Off);

  auto second     = learner(CentralStorageStrategy{Cpu::logical(2)});
  auto const rest = second.fit(data, folder.options(3, every));
  CHECK(second.hashes()[0] == undisturbed.hashes()[0]);
  REQUIRE(!rest.empty());
  CHECK(rest.back().scores.loss() == whole.back().scores.loss());  // of the whole epoch, its first part included
  CHECK(rest.back().scores.rows() == 279);
  CHECK(rest.back().steps == 20);

  auto third = learner(OneDeviceStrategy{Cpu::logical(1)[0]});
  CHECK(third.fit(data, folder.options(3, every)).empty());  // all of it is done
  CHECK(third.hashes()[0] == undisturbed.hashes()[0]);
}

TEST_CASE("workers that meet to save go on in the middle of an epoch with the same bits", "[trainer][resume]") {
  auto const data    = tiny::uneven();
  auto const servers = [](int workers, int n, auto when) {
    return learner(ParameterServerStrategy{Cluster::local(workers, n), when});
  };
  auto undisturbed   = learner(MirroredStrategy{Cpu::logical(2)});
  auto const whole   = undisturbed.fit(data, {.epochs = 2, .show = Show::nothing});
  auto const batches = GENERATE(2, 7, 20, 26);
  auto const folder  = Folder{};
  {
    auto first = servers(2, 2, Synchronous{});
    CHECK_THROWS_AS(first.fit(CutOff{.left = std::make_shared<int>(batches)}, folder.options(2, 3)), CutOff::Off);
  }
  auto second     = servers(4, 1, Synchronous{});
  auto const rest = second.fit(data, folder.options(2, 3));
  CHECK(second.step() == 40);
  CHECK(second.hashes()[0] == undisturbed.hashes()[0]);
  CHECK(rest.back().scores.rows() == 279);
  CHECK(rest.back().scores.loss() == Approx(whole.back().scores.loss()));
}

TEST_CASE("the last update is in a checkpoint, whether or not it was its turn", "[trainer][resume][follow]") {
  auto const folder = Folder{};
  auto const every  = GENERATE(3U, 4U, 100U);  // of 40 updates
  auto job          = learner(MirroredStrategy{Cpu::logical(2)});
  job.fit(tiny::uneven(), folder.options(2, every));
  auto follower = learner(OneDeviceStrategy{Cpu::logical(1)[0]});
  auto steps    = std::vector<std::uint64_t>{};
  evaluate_checkpoints(follower, tiny::uneven(), {.checkpoints = {.folder = folder.path}, .epochs = 2},
                       [&](CheckpointScores const& one) { steps.push_back(one.step); });
  CHECK(steps.back() == 40);
}

TEST_CASE("an evaluator that saw the last update before its epoch ended does not wait for another",
          "[trainer][follow]") {
  auto const folder = Folder{};
  auto job          = learner(MirroredStrategy{Cpu::logical(2)});
  CHECK_THROWS_AS(job.fit(CutOff{.left = std::make_shared<int>(41)}, folder.options(2, 4)), CutOff::Off);
  auto follower = learner(OneDeviceStrategy{Cpu::logical(1)[0]});
  auto const found =
      evaluate_checkpoints(follower, tiny::uneven(), {.checkpoints = {.folder = folder.path}, .epochs = 2},
                           [&](CheckpointScores const& one) {
                             CHECK(one.step == 40);
                             CHECK(one.epoch == 1);
                             job.fit(tiny::uneven(), folder.options(2, 4));
                           });
  REQUIRE(found.size() == 1);
  CHECK(found.back().epoch == 2);
}

TEST_CASE("a rate that follows from the last one is set once for an epoch, also when that goes on",
          "[trainer][resume]") {
  auto const falling = [] { return LearningRateScheduler{[](int, float rate) { return rate * 0.5F; }}; };
  auto undisturbed   = learner(MirroredStrategy{Cpu::logical(2)});
  undisturbed.fit(tiny::uneven(), {.epochs = 3, .show = Show::nothing}, falling());
  auto const batches = GENERATE(7, 20, 21, 35);
  auto const folder  = Folder{};
  auto first         = learner(MirroredStrategy{Cpu::logical(2)});
  CHECK_THROWS_AS(first.fit(CutOff{.left = std::make_shared<int>(batches)}, folder.options(3, 3), falling()),
                  CutOff::Off);
  auto second = learner(MirroredStrategy{Cpu::logical(2)});
  second.fit(tiny::uneven(), folder.options(3, 3), falling());
  CHECK(second.learning_rate() == undisturbed.learning_rate());
  CHECK(second.hashes()[0] == undisturbed.hashes()[0]);
}

TEST_CASE("replicas that learn apart go on from the end of an epoch with the same bits", "[trainer][resume]") {
  auto const data    = tiny::uneven();
  auto const goes_on = [&](auto make) {
    auto undisturbed = make();
    undisturbed.fit(data, {.epochs = 3, .show = Show::nothing});
    auto const folder = Folder{};
    auto first        = make();
    CHECK_THROWS_AS(first.fit(CutOff{.left = std::make_shared<int>(33)}, folder.options(3)), CutOff::Off);
    auto second = make();
    CHECK(second.fit(data, folder.options(3)).size() == 2);
    CHECK(second.hashes() == undisturbed.hashes());
    for (auto& copy : second.copies())
      CHECK(std::ranges::equal(copy.optimizer.slots(), undisturbed.copies()[0].optimizer.slots()));
    auto third = learner(MirroredStrategy{Cpu::logical(2)});  // which was saved apart, goes on together
    third.fit(data, folder.options(4));
    CHECK(third.step() == 80);
  };
  auto const apart = [](auto strategy) {
    return [strategy] {
      return Trainer{nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{}), strategy,
                     RingAllReduce{}, LocalTransport{}, 7};
    };
  };
  goes_on(apart(local_sgd<8>(MirroredStrategy{Cpu::logical(3)})));
  goes_on(apart(Gossip{MirroredStrategy{Cpu::logical(3)}}));
}

TEST_CASE("epochs of some steps go on in the middle of a pass", "[trainer][resume]") {
  auto const data    = tiny::uneven();
  auto const options = [](FitOptions o) {
    o.steps_per_epoch = 7;
    return o;
  };
  auto undisturbed = learner(MirroredStrategy{Cpu::logical(2)});
  undisturbed.fit(data, options({.epochs = 6, .show = Show::nothing}));
  auto const folder = Folder{};
  auto const every  = GENERATE(std::size_t{0}, std::size_t{5});
  auto first        = learner(MirroredStrategy{Cpu::logical(2)});
  CHECK_THROWS_AS(first.fit(CutOff{.left = std::make_shared<int>(31)}, options(folder.options(6, every))), CutOff::Off);
  auto second = learner(MirroredStrategy{Cpu::logical(4)});
  second.fit(data, options(folder.options(6, every)));
  CHECK(second.hashes()[0] == undisturbed.hashes()[0]);
}

TEST_CASE("T39: a rank that is asked to end ends all of them after one update, and they go on from there",
          "[trainer][resume][processes]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto const worker = [&](std::vector<std::string> const& addresses, int me) {
    auto const cluster = Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
    return learner(MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)}, TcpTransport{});
  };
  auto const addresses = free_loopback_addresses(2);
  auto ended           = Processes{2,
                         [&](int me, Voice voice) {
                           auto const end       = EndOnSignal{};
                           auto one             = worker(addresses, me);
                           auto options         = folder.options(2);
                           options.asked_to_end = end.asked();
                           auto cut             = CutOff{.left = std::make_shared<int>(9)};
                           if (me == 1) ::raise(SIGTERM);  // only one of them, and not the chief
                           try {
                             one.fit(cut, options);
                           } catch (Preempted const&) {
                             if (!std::filesystem::exists(folder.path / "ckpt-000001"))
                               voice.say("it ends before the chief has saved");
                             throw;
                           }
                           voice.say("it went on");
                         },
                         60};
  for (int i = 0; i < 2; ++i) {
    CHECK(ended.line(i).find("asked to end after update 1; a checkpoint is in " + folder.path.string()) !=
          std::string::npos);
    CHECK(ended.exit(i) == 143);
  }
  auto const others = free_loopback_addresses(2);
  auto gone_on      = Processes{2,
                           [&](int me, Voice voice) {
                             auto one = worker(others, me);
                             one.fit(data, folder.options(2));
                             voice.say(std::to_string(one.hashes()[0]));
                           },
                           60};
  auto const lines  = std::vector{gone_on.line(0), gone_on.line(1)};
  auto undisturbed  = learner(MirroredStrategy{Cpu::logical(2)});  // now: processes begin beside one thread
  undisturbed.fit(data, {.epochs = 2, .show = Show::nothing});
  for (auto const& line : lines) CHECK(line == std::to_string(undisturbed.hashes()[0]));
}

TEST_CASE("T39: ranks that are asked to end say so when the checkpoint cannot be written",
          "[trainer][resume][processes]") {
  auto const folder    = Folder{};
  auto const addresses = free_loopback_addresses(2);
  auto ended           = Processes{2,
                         [&](int me, Voice voice) {
                           auto asked         = std::atomic<bool>{me == 1};
                           auto const nothing = ::rlimit{0, 0};  // bytes that a file may grow to
                           std::signal(SIGXFSZ, SIG_IGN);
                           if (me == 0 && ::setrlimit(RLIMIT_FSIZE, &nothing) != 0) throw Error{"no limit of files"};
                           auto const cluster = Cluster::at(
                               {.workers = addresses, .me = {Role::worker, me}, .job = "test-" + addresses[0]});
                           auto one = learner(MultiWorkerMirroredStrategy{cluster, Cpu::logical(1)}, TcpTransport{});
                           auto options               = folder.options(2);
                           options.asked_to_end       = &asked;
                           options.checkpoints.saving = Saving::behind;
                           options.checkpoints.log    = [](std::string const&) {};
                           one.fit(tiny::uneven(), options);
                           voice.say("it went on");
                         },
                         60};
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(ended.line(i), Catch::Contains("asked to end after update 1; its checkpoint could not be written to"));
    CHECK(ended.exit(i) == 143);
  }
}

TEST_CASE("T39: workers of a parameter server that are asked to end do so at the next checkpoint, and go on from there",
          "[trainer][resume][processes]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto const join   = [&](std::vector<std::string> const& all, int i) {  // two workers, then a server
    auto const cluster = Cluster::at({.workers = {all[0], all[1]},
                                        .servers = {all[2]},
                                        .me      = i < 2 ? TaskId{Role::worker, i} : TaskId{Role::ps, 0},
                                        .job     = "test-" + all[0]});
    return learner(ParameterServerStrategy{cluster, Synchronous{}}, TcpTransport{});
  };
  auto const every  = GENERATE(std::size_t{5}, std::size_t{0});  // 0: after each epoch, of 20 updates
  auto const update = every == 0 ? "20" : "5";
  auto addresses    = free_loopback_addresses(3);
  auto ended        = Processes{3,
                         [&](int me, Voice voice) {
                           auto const end       = EndOnSignal{};
                           auto one             = join(addresses, me);
                           auto options         = folder.options(2, every);
                           options.asked_to_end = end.asked();
                           if (me == 1) ::raise(SIGTERM);
                           one.fit(data, options);
                           voice.say(me == 2 ? "served" : "it went on");
                         },
                         60};
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(ended.line(i), Catch::Contains("asked to end after update " + std::string{update} +
                                              "; a checkpoint is in " + folder.path.string()));
    CHECK(ended.exit(i) == 143);
  }
  CHECK(ended.line(2) == "served");
  auto const others = free_loopback_addresses(3);
  auto gone_on      = Processes{3,
                           [&](int me, Voice voice) {
                             auto one = join(others, me);
                             one.fit(data, folder.options(2, every));
                             voice.say(me == 2 ? "served" : std::to_string(one.hashes()[0]));
                           },
                           60};
  auto const line   = gone_on.line(0);
  auto undisturbed  = learner(MirroredStrategy{Cpu::logical(2)});
  undisturbed.fit(data, {.epochs = 2, .show = Show::nothing});
  CHECK(line == std::to_string(undisturbed.hashes()[0]));
}

TEST_CASE("an evaluator follows the checkpoints of a job until its last epoch", "[trainer][follow][processes]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto processes    = Processes{
      2,
      [&](int me, Voice voice) {
        auto one = learner(MirroredStrategy{Cpu::logical(2)});
        if (me == 0) {
          one.fit(data, folder.options(3));
          voice.say(std::to_string(one.evaluate(data).loss()));
          return;
        }
        auto told        = std::size_t{0};
        auto const found = evaluate_checkpoints(
            one, data, {.checkpoints = {.folder = folder.path}, .epochs = 3, .every = std::chrono::milliseconds{1}},
            [&](CheckpointScores const&) { ++told; });
        voice.say(std::to_string(found.back().scores.loss()));
        voice.say(std::to_string(found.back().step) + " " + std::to_string(found.back().epoch) + " " +
                     std::to_string(told == found.size()));
      },
      60};
  CHECK(processes.line(1) == processes.line(0));
  CHECK(processes.line(1) == "60 3 1");
  CHECK(processes.exit(0) == 0);
  CHECK(processes.exit(1) == 0);
}

TEST_CASE("an evaluator sees every checkpoint that is there long enough", "[trainer][follow]") {
  auto const data   = tiny::uneven();
  auto const folder = Folder{};
  auto job          = learner(MirroredStrategy{Cpu::logical(2)});
  auto evaluator    = learner(OneDeviceStrategy{Cpu::logical(1)[0]});
  auto losses       = std::vector<double>{};
  auto const train  = [&](int epochs) {
    job.fit(data, folder.options(epochs));
    losses.push_back(job.evaluate(data).loss());
  };
  train(1);
  auto const found = evaluate_checkpoints(
      evaluator, data, {.checkpoints = {.folder = folder.path}, .epochs = 4, .every = std::chrono::milliseconds{1}},
      [&](CheckpointScores const& one) {
        if (one.epoch < 4) train(static_cast<int>(one.epoch) + 1);
      });
  REQUIRE(found.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(found[i].step == 20 * (i + 1));
    CHECK(found[i].scores.loss() == Approx(losses[i]).epsilon(1e-6));
  }
}

TEST_CASE("what cannot go on says so", "[trainer][resume]") {
  auto const folder = Folder{};
  auto gossip       = tiny::learner_under(Gossip{MirroredStrategy{Cpu::logical(2)}});
  CHECK_THROWS_WITH(gossip.fit(tiny::uneven(), folder.options(1, 3)), Catch::Contains("learn apart for some steps"));
  learner(MirroredStrategy{Cpu::logical(2)}).fit(tiny::uneven(), folder.options(1));
  auto other = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});  // SGD: one slot, not two
  CHECK_THROWS_WITH(other.fit(tiny::uneven(), folder.options(2)), Catch::Contains("slot1"));
}

}  // namespace resume_test
