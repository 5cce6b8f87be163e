// SPDX-License-Identifier: Apache-2.0
// Ranks that were started with different models, options or data, or whose variables become different: rows T23, T23a
// and T23b of docs/65-robustness.md.
#include "one_of_many.hpp"
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"
#include "told.hpp"

#include <chorale/transport/simulated.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

template <int Hidden, class Activation, int Percent = 10>
struct PlanNet : nn::Sequential<nn::Input<6>, nn::Dense<Hidden>, Activation, nn::Dropout<Percent>, nn::Dense<3>> {};

using UsualNet = PlanNet<8, nn::ReLU>;

auto usual_rule(float rate = 0.01F) { return optim::SGD{.learning_rate = rate}; }

/// 40 rows of 6 numbers with 3 targets each, of which row 20 has another first number where `changed`.
auto rows(bool changed = false) {
  auto all = tiny::batch<float>(40, 6, 3);
  if (changed) all.x[20 * 6] += 1;
  return data::from_tensors(all.x, all.y, 6);
}
auto usual_data() { return rows().shuffle(40, 3).batch(8); }

/// Trains for an epoch, as one rank of many.
template <class Net, class T, class Loss, class Optimizer, class Data>
void train(T const& transport, OneOfMany ranks, Loss loss, Optimizer rule, Data const& from, FitOptions options = {},
           Seed seed = 7) {
  auto trainer = Trainer{nn::compile<Net>(loss, rule), ranks, RingAllReduce{}, transport, seed};
  options.show = Show::nothing;
  trainer.fit(from, options);
}

/// A way in which one rank differs: what both values are, and how it trains.
template <class T> struct Difference {
  char const *name, *usual, *odd, *key;
  void (*train_odd)(T const&, OneOfMany);
};

template <class T> void train_usual(T const& transport, OneOfMany ranks) {
  train<UsualNet>(transport, ranks, loss::MeanSquaredError{}, usual_rule(), usual_data());
}

template <class T> std::vector<Difference<T>> differences() {
  using Mean = loss::MeanSquaredError;
  return {
      {"shape", "f32[6,8]", "f32[6,16]", "dense/kernel ",
       [](T const& t, OneOfMany r) { train<PlanNet<16, nn::ReLU>>(t, r, Mean{}, usual_rule(), usual_data()); }},
      {"layer", "ReLU", "Tanh", "layer 2 ",
       [](T const& t, OneOfMany r) { train<PlanNet<8, nn::Tanh>>(t, r, Mean{}, usual_rule(), usual_data()); }},
      {"option of a layer", "Dropout<10>", "Dropout<30>", "layer 3 ",
       [](T const& t, OneOfMany r) { train<PlanNet<8, nn::ReLU, 30>>(t, r, Mean{}, usual_rule(), usual_data()); }},
      {"loss", "MeanSquaredError", "CrossEntropy", "loss ",
       [](T const& t, OneOfMany r) { train<UsualNet>(t, r, loss::CrossEntropy{}, usual_rule(), usual_data()); }},
      {"optimizer", "SGD", "Adam", "optimizer ",
       [](T const& t, OneOfMany r) { train<UsualNet>(t, r, Mean{}, optim::Adam{}, usual_data()); }},
      {"learning rate", "0.01", "0.1", "optimizer SGD learning_rate ",
       [](T const& t, OneOfMany r) { train<UsualNet>(t, r, Mean{}, usual_rule(0.1F), usual_data()); }},
      {"seed", "7", "8", "seed ",
       [](T const& t, OneOfMany r) { train<UsualNet>(t, r, Mean{}, usual_rule(), usual_data(), {}, 8); }},
      {"options of fit", "1", "2", "fit epochs ",
       [](T const& t, OneOfMany r) { train<UsualNet>(t, r, Mean{}, usual_rule(), usual_data(), {.epochs = 2}); }},
      {"batch of the data", "5", "10", "data elements ",
       [](T const& t, OneOfMany r) { train<UsualNet>(t, r, Mean{}, usual_rule(), rows().shuffle(40, 3).batch(4)); }},
      {"order of the data", "3", "4", "data shuffle 40 seed ",
       [](T const& t, OneOfMany r) { train<UsualNet>(t, r, Mean{}, usual_rule(), rows().shuffle(40, 4).batch(8)); }},
      {"numbers of the data", "", "", "data sample of rows ",
       [](T const& t, OneOfMany r) {
         train<UsualNet>(t, r, Mean{}, usual_rule(), rows(true).shuffle(40, 3).batch(8));
       }},
  };
}

/// How a rank ended, and from when it was told: when all had been started, and when it threw.
struct End {
  double began = 0, ended = 0;
  std::string error;

  static End parse(std::string const& line) {
    auto end = End{};
    auto in  = std::istringstream{line};
    in >> end.began >> end.ended;
    in.ignore();
    std::getline(in, end.error);
    return end;
  }
};

template <class Work> void tell_both_times(Voice voice, Work work) {
  auto const began = seconds_now();
  try {
    work();
  } catch (std::exception const& error) {
    auto line = std::ostringstream{};
    line.precision(17);
    line << began << ' ' << seconds_now() << ' ' << error.what();
    voice.say(line.str());
    throw;
  }
}

/// Every other rank that is slow to begin is waited for; from then on a rank is told at once. The limits that would end
/// it otherwise are ten times as long.
constexpr auto told_within = 3.0;
Timeouts patient() { return {.handshake = 30s, .join = 60s}; }

/// The last one of all ranks begins, and all end: the longest time between the two.
double slowest(std::vector<End> const& ends) {
  auto const last = std::ranges::max(ends, {}, &End::began).began;
  return std::ranges::max(ends, {}, &End::ended).ended - last;
}

struct Folder {
  std::filesystem::path at = std::filesystem::temp_directory_path() / ("chorale-plan-" + std::to_string(::getpid()));
  Folder() { std::filesystem::remove_all(at); }
  ~Folder() { std::filesystem::remove_all(at); }
};

/// Callback: makes a variable of the replicas of this process another one after a step, counted from 1 over all fits.
struct Breaks {
  std::uint64_t after;
  std::size_t replica;

  void on_step_end(auto& trainer, StepEnd const&) const {
    if (trainer.step() == after) break_one(trainer.copies()[replica]);
  }
  static void break_one(auto& copy) { copy.net.variables()[1].value[2] += 1e-6F; }
};

/// Callback: counts steps.
struct Counts {
  int* steps;

  void on_step_end(auto&, StepEnd const&) const { ++*steps; }
};

/// A model with all replicas in this process.
auto one_process(int replicas, auto transport) {
  return Trainer{nn::compile<UsualNet>(loss::MeanSquaredError{}, usual_rule()),
                 MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, transport, 7};
}

/// Four epochs of five steps.
FitOptions twenty_steps(int compare_every) {
  return {.epochs = 4, .show = Show::nothing, .compare_every = compare_every};
}

template <class T> void check_found_at_the_end(T const& transport) {
  for (int const replicas : {2, 3, 4}) {
    auto trainer = one_process(replicas, transport);
    INFO(replicas << " replicas");
    CHECK_THROWS_WITH(
        trainer.fit(usual_data(), twenty_steps(100), Breaks{7, 1}),
        Catch::Contains("replicas have drifted apart: dense/bias ") &&
            Catch::Contains(replicas == 2 ? "is not the same on all 2 replicas" : "of replica 1 is not that of"));
    CHECK(trainer.step() == 20);
    auto unasked = one_process(replicas, transport);
    unasked.fit(usual_data(), twenty_steps(0), Breaks{7, 1});
    CHECK(unasked.hashes()[0] != unasked.hashes()[1]);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("T23: whatever one rank has otherwise, all ranks name it with both values, at once",
                   "[faults][plan]", TcpTransport, SharedMemoryTransport) {
  auto cells = 0;
  auto worst = 0.0;
  for (int const ranks : {2, 3, 4})
    for (auto const& how : differences<TestType>()) {
      auto const odd       = static_cast<Rank>(cells % ranks);
      auto const transport = between_processes<TestType>(ranks, patient());
      auto processes =
          Processes{ranks, [&](Rank rank, Voice voice) {
                      tell_both_times(voice, [&] {
                        (rank == odd ? how.train_odd : train_usual<TestType>)(transport, OneOfMany{ranks, rank});
                      });
                    }};
      auto ends = std::vector<End>{};
      for (Rank rank = 0; rank < ranks; ++rank) {
        ends.push_back(End::parse(processes.line(rank)));
        INFO(how.name << ", rank " << rank << " of " << ranks << ", of which " << odd
                      << " is odd: " << ends.back().error);
        auto const both = [&](std::string const& a, std::string const& b) {
          return Catch::Contains(how.key + a + " vs " + b + " of ");
        };
        if (*how.usual != '\0') CHECK_THAT(ends.back().error, both(how.usual, how.odd) || both(how.odd, how.usual));
        else CHECK_THAT(ends.back().error, Catch::Contains(how.key) && Catch::Contains(" vs "));
        CHECK(ends.back().error == ends.front().error);
        CHECK(processes.exit(rank) == 3);
      }
      CHECK(slowest(ends) < told_within);
      worst = std::max(worst, slowest(ends));
      ++cells;
    }
  CHECK(cells == 33);
  std::printf("%d cells over %s; all ranks told within %.3f s of the last one's begin\n", cells,
              type_name<TestType>().c_str(), worst);
}

TEMPLATE_TEST_CASE("T23: ranks that agree in everything train", "[faults][plan]", TcpTransport, SharedMemoryTransport) {
  auto const ranks     = GENERATE(2, 3, 4);
  auto const transport = between_processes<TestType>(ranks, patient());
  auto processes =
      Processes{ranks, [&](Rank rank, Voice voice) {
                  tell_both_times(voice, [&] { train_usual<TestType>(transport, OneOfMany{ranks, rank}); });
                }};
  for (Rank rank = 0; rank < ranks; ++rank) {
    CHECK(processes.line(rank).empty());
    CHECK(processes.exit(rank) == 0);
  }
}

TEST_CASE("T23: data that differs on purpose is not compared when nobody asks for it", "[faults][plan]") {
  auto const transport = between_processes<TcpTransport>(2, patient());
  auto processes       = Processes{2, [&](Rank rank, Voice voice) {
                               tell_both_times(voice, [&] {
                                 train<UsualNet>(transport, OneOfMany{2, rank}, loss::MeanSquaredError{}, usual_rule(),
                                                       rows(rank == 1).shuffle(40, 3).batch(8), {.compare_data = false});
                               });
                             }};
  for (Rank rank = 0; rank < 2; ++rank) {
    CHECK(processes.line(rank).empty());
    CHECK(processes.exit(rank) == 0);
  }
}

namespace {

/// Batches of rows() that describe themselves by nothing, not even their number.
struct Nameless {
  using element = decltype(usual_data())::element;

  std::size_t rows_of_each;

  auto stream(std::size_t epoch) const { return rows().batch(static_cast<int>(rows_of_each)).stream(epoch); }
  std::optional<std::size_t> size() const { return std::nullopt; }
};

/// How ranks end that train over such batches: of 12 rows, but on rank 1 of `odd`.
std::vector<End> over_nameless(int ranks, std::size_t odd, FitOptions const& options) {
  auto const transport = between_processes<TcpTransport>(ranks, patient());
  auto processes       = Processes{ranks, [&](Rank rank, Voice voice) {
                               tell_both_times(voice, [&] {
                                 train<UsualNet>(transport, OneOfMany{ranks, rank}, loss::MeanSquaredError{},
                                                       usual_rule(), Nameless{rank == 1 ? odd : 12}, options);
                               });
                             }};
  auto ends            = std::vector<End>{};
  for (Rank rank = 0; rank < ranks; ++rank) ends.push_back(End::parse(processes.line(rank)));
  return ends;
}

}  // namespace

TEST_CASE("T23: batches of another size, of data that describes nothing, are told in the first step",
          "[faults][plan]") {
  for (int const ranks : {2, 3}) {
    for (auto const& end : over_nameless(ranks, 11, {.steps_per_epoch = 3})) {
      INFO(ranks << " ranks: " << end.error);
      CHECK_THAT(end.error, Catch::Contains("batches of 12 rows") || Catch::Contains("batches of 11 rows"));
      CHECK_THAT(end.error, Catch::Contains("in the update to step 1"));
    }
    for (auto const& end : over_nameless(ranks, 12, {.epochs = 2})) CHECK(end.error == "");  // the last one has 4
    for (auto const& end : over_nameless(ranks, 12, {.epochs = 2, .accumulate = 3})) CHECK(end.error == "");
    for (auto const& end : over_nameless(ranks, 11, {.compare_data = false, .steps_per_epoch = 3}))
      CHECK(end.error == "");
  }
}

TEST_CASE("T23b: replicas whose variables differ when a short fit ends are named, in one process", "[faults][plan]") {
  check_found_at_the_end(LocalTransport{});
  check_found_at_the_end(SharedMemoryTransport{});
  check_found_at_the_end(TcpTransport{});
  check_found_at_the_end(SimulatedTransport{});
}

TEMPLATE_TEST_CASE("T23b: ranks whose variables differ when a short fit ends all end with the same error",
                   "[faults][plan]", TcpTransport, SharedMemoryTransport) {
  for (int const ranks : {2, 3, 4}) {
    auto const transport = between_processes<TestType>(ranks, patient());
    auto processes =
        Processes{ranks, [&](Rank rank, Voice voice) {
                    tell_both_times(voice, [&] {
                      auto trainer = Trainer{nn::compile<UsualNet>(loss::MeanSquaredError{}, usual_rule()),
                                             OneOfMany{ranks, rank}, RingAllReduce{}, transport, 7};
                      trainer.fit(usual_data(), twenty_steps(100), Breaks{rank == 1 ? std::uint64_t{7} : 0, 0});
                    });
                  }};
    auto first = std::string{};
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto const end = End::parse(processes.line(rank));
      INFO("rank " << rank << " of " << ranks << ": " << end.error);
      if (rank == 0) first = end.error;
      CHECK(end.error == first);
      CHECK_THAT(end.error, Catch::Contains("replicas have drifted apart: dense/bias "));
      CHECK(processes.exit(rank) == 4);
    }
  }
}

TEST_CASE("T23b: no checkpoint is written of replicas whose variables differ", "[faults][plan]") {
  auto const folder          = Folder{};
  auto options               = twenty_steps(100);
  options.checkpoints.folder = folder.at;
  options.checkpoint_every   = 5;
  auto trainer               = one_process(3, LocalTransport{});
  CHECK_THROWS_WITH(trainer.fit(usual_data(), options, Breaks{7, 1}),
                    Catch::Contains("replicas have drifted apart: dense/bias of replica 1"));
  CHECK(trainer.step() == 10);

  auto steps = 0;
  auto next  = one_process(3, LocalTransport{});
  next.fit(usual_data(), options, Counts{&steps});
  CHECK(next.step() == 20);
  CHECK(steps == 15);  // it goes on from the one of update 5
}
