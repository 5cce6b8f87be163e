// SPDX-License-Identifier: Apache-2.0
// What a Trainer makes of faults: rows T23 and T27 of docs/65-robustness.md.
#include "one_of_many.hpp"
#include "test/faults/told.hpp"
#include "test/support/limits.hpp"
#include "test/support/reference.hpp"

#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;
using tiny::quietly;

namespace {

template <int Hidden> struct Net : nn::Sequential<nn::Input<6>, nn::Dense<Hidden>, nn::Tanh, nn::Dense<3>> {};

template <int Hidden, class T> auto trainer_of(T const& transport, int ranks, Rank rank) {
  return Trainer{nn::compile<Net<Hidden>>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F}),
                 OneOfMany{ranks, rank}, RingAllReduce{}, transport, 7};
}

TcpTransport transport_of(int ranks) {
  return {.addresses = free_loopback_addresses(ranks), .timeouts = {.join = 20s}, .log = [](std::string const&) {}};
}

/// Ten batches of four rows a rank.
tiny::Batches<int> batches(int ranks, Rank rank) {
  auto const rows = static_cast<std::size_t>(4 * ranks);
  return {tiny::batch<int>(10 * rows, 6, 1, static_cast<std::uint64_t>(rank)), std::vector<std::size_t>(10, rows)};
}

}  // namespace

TEST_CASE("T23: ranks with networks of another width name the first tensor that differs, and end with exit code 3",
          "[faults][trainer]") {
  auto const ranks     = GENERATE(2, 3);
  auto const transport = transport_of(ranks);
  auto const since     = seconds_now();
  auto processes       = Processes{ranks, [&](Rank rank, Voice) {
                               if (rank == 1) trainer_of<16>(transport, ranks, rank).fit(batches(ranks, rank), quietly);
                               else trainer_of<8>(transport, ranks, rank).fit(batches(ranks, rank), quietly);
                             }};
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const line = processes.line(rank);
    INFO("rank " << rank << " of " << ranks << ": " << line);
    CHECK_THAT(line, Catch::Contains("dense/kernel f32[6,8] vs f32[6,16]") ||
                         Catch::Contains("dense/kernel f32[6,16] vs f32[6,8]"));
    CHECK(processes.exit(rank) == 3);
  }
  CHECK(seconds_now() - since < 5);
}

TEST_CASE("T38: a rank with little address space trains, or ends with one sentence", "[faults][trainer][limits]") {
  if (has_shadow) return skip("T38, trainers", no_limit);
  auto failed = 0;
  for (rlim_t more = 4; more <= 46; more += 6) {  // MiB, besides what the process has
    auto const transport = TcpTransport{
        .addresses = free_loopback_addresses(2), .timeouts = {.join = 2s}, .log = [](std::string const&) {}};
    auto processes  = Processes{2, [&](Rank rank, Voice voice) {
                                 if (rank == 1) set_limit(RLIMIT_AS, address_space() + (more << 20));
                                 trainer_of<8>(transport, 2, rank).fit(batches(2, rank), quietly);
                                 voice.say("trained");
                               }};
    auto const line = processes.line(1);
    auto const code = processes.exit(1);
    INFO(more << " MiB: exit code " << code << ": " << line);
    CHECK(((code == 0 && line == "trained") || ((code == 1 || code == 138) && line.starts_with("chorale: "))));
    CHECK(processes.exit(0) == (code == 0 ? 0 : 138));
    failed += code != 0;
  }
  CHECK(failed > 1);
  CHECK(failed < 8);
}

TEST_CASE("ranks that bring data of different lengths are told so, and how far each had come", "[faults][trainer]") {
  auto const predicts  = GENERATE(false, true);
  auto const transport = transport_of(2);
  auto processes       = Processes{
      2, [&](Rank rank, Voice) {
        auto trainer = trainer_of<8>(transport, 2, rank);
        auto data    = batches(2, rank);
        if (rank == 1) data.sizes.resize(7);
        if (predicts) trainer.predict(data);
        trainer.fit(data,
                          {.show = Show::nothing, .compare_data = predicts});  // else the first difference would be told
        trainer.evaluate(data);
      }};
  auto const places = predicts ? std::array{"in predict", "in fit, before its first batch"}
                               : std::array{"in fit, at batch 8 of epoch 1", "at the end of fit"};
  for (Rank rank = 0; rank < 2; ++rank) {
    auto const line = processes.line(rank);
    INFO("rank " << rank << ": " << line);
    CHECK_THAT(line,
               Catch::Contains("the processes of this job have different data, options or callbacks: this one was " +
                               std::string{places[static_cast<std::size_t>(rank)]} + " when ") &&
                   Catch::Contains("Try: a dataset with as many batches of as many rows in every process"));
    CHECK(processes.exit(rank) == 3);
  }
}

TEMPLATE_TEST_CASE("T27: replicas that have drifted apart are told to all ranks, which end with exit code 4",
                   "[faults][trainer]", TcpTransport, SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 3);
  auto const transport = between_processes<TestType>(ranks, {.join = 20s});
  auto processes       = Processes{ranks, [&](Rank rank, Voice) {
                               auto trainer = trainer_of<8>(transport, ranks, rank);
                               trainer.fit(batches(ranks, rank), quietly);
                               if (rank == 1) trainer.copies()[0].net.variables()[0].value[0] += 1;
                               trainer.fit(batches(ranks, rank), {.show = Show::nothing, .compare_every = 1});
                             }};
  for (Rank rank = 0; rank < ranks; ++rank) {
    CHECK_THAT(processes.line(rank), Catch::Contains("replicas have drifted apart: dense/kernel"));
    CHECK(processes.exit(rank) == 4);
  }
}

TEST_CASE("T27: a number that is not finite on one rank ends the step for all over TCP, and no bit changes",
          "[faults][trainer]") {
  auto const ranks = GENERATE(2, 3, 4);
  auto const value = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  auto trainer     = Trainer{nn::compile<Net<8>>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F}),
                         MirroredStrategy{Cpu::logical(ranks)}, RingAllReduce{}, TcpTransport{}, 7};
  auto good        = batches(ranks, 0);
  good.sizes.resize(7);
  trainer.fit(good, quietly);  // steps 0 to 6
  auto const before = trainer.hashes();
  CHECK(before == std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), before[0]));
  auto bad          = batches(ranks, 0);
  bad.rows.x[4 * 6] = value;  // the first row of rank 1's share
  CHECK_THROWS_AS(trainer.fit(bad, quietly), NumericFault);
  CHECK(trainer.hashes() == before);
  CHECK_THROWS_WITH(trainer.fit(bad, quietly),
                    Catch::Contains("of step 7 is ") && Catch::Contains("no variable was changed") &&
                        (Catch::Contains("the loss") || Catch::Contains("not finite on replica 1")));
  auto const history = trainer.fit(bad, {.show = Show::nothing, .on_non_finite = NonFinite::skip});
  CHECK(history[0].skipped == 1);
  auto const after = trainer.hashes();
  CHECK(after != before);
  CHECK(after == std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), after[0]));
}
