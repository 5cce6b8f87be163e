// SPDX-License-Identifier: Apache-2.0
//
// Shards of workers that are processes, over TCP and over shared memory, against one replica with the whole batch.
#include "test/strategy/units.hpp"
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"

#include <chorale/strategy/sharded.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>

using namespace chorale;
using namespace units_test;

namespace {

auto const clipped_adam = optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F};

FitOptions saving(std::filesystem::path const& folder, int epochs) {
  return {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder}};
}

/// What a trainer has learned of the data: the bits of its variables, then the loss of all rows, and their outputs.
struct Seen {
  std::uint64_t bits = 0;
  double loss = 0, outputs = 0;
  std::size_t rows = 0;

  template <class Trainer> static Seen of(Trainer& trainer) {
    auto const data   = OddBatches{};
    auto seen         = Seen{.bits = hash_of(Span<float const>{tiny::values_of(trainer)})};
    auto const scores = trainer.evaluate(data);
    auto const all    = trainer.predict(data);
    for (std::size_t i = 0; i < all.values.size(); ++i) seen.outputs += static_cast<double>(i % 101) * all.values[i];
    seen.loss = scores.loss();
    seen.rows = scores.rows() + all.rows();
    return seen;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("shards of processes learn, evaluate, predict and save what one replica does",
                   "[strategy][sharded][units][processes]",
                   (std::tuple<std::integral_constant<Zero, Zero::one>, TcpTransport>),
                   (std::tuple<std::integral_constant<Zero, Zero::two>, TcpTransport>),
                   (std::tuple<std::integral_constant<Zero, Zero::three>, TcpTransport>),
                   (std::tuple<std::integral_constant<Zero, Zero::one>, SharedMemoryTransport>),
                   (std::tuple<std::integral_constant<Zero, Zero::two>, SharedMemoryTransport>),
                   (std::tuple<std::integral_constant<Zero, Zero::three>, SharedMemoryTransport>)) {
  constexpr auto zero  = std::tuple_element_t<0, TestType>::value;
  using Transport      = std::tuple_element_t<1, TestType>;
  auto const workers   = GENERATE(2, 3);
  auto const addresses = free_loopback_addresses(workers);
  auto const folder    = chorale::test::Folder{};
  auto processes       = chorale::test::Processes{
      workers, [&](int me, chorale::test::Voice voice) {
        auto const cluster =
            Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "shards-" + addresses[0]});
        auto trainer = Trainer{odd_net(clipped_adam), ShardedStrategy<zero>{cluster, Cpu::logical(1)},
                               Reproducible<8>{}, Transport{}, 7};
        trainer.fit(OddBatches{}, saving(me == 0 ? folder / "run" : "/nowhere", 1));  // only the chief looks there
        auto const seen = Seen::of(trainer);
        auto line       = std::ostringstream{};
        line.precision(17);
        line << seen.bits << ' ' << seen.loss << ' ' << seen.outputs << ' ' << seen.rows;
        voice.say(line.str());
      }};
  auto lines = std::vector<std::string>{};
  for (int i = 0; i < workers; ++i) lines.push_back(processes.line(i));
  for (int i = 0; i < workers; ++i) CHECK(processes.exit(i) == 0);

  auto one =
      Trainer{odd_net(clipped_adam), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, LocalTransport{}, 7};
  one.fit(OddBatches{}, tiny::quietly);
  auto const expected = Seen::of(one);
  for (auto const& line : lines) {
    INFO(line);
    CHECK(line == lines[0]);
    auto seen = Seen{};
    std::istringstream{line} >> seen.bits >> seen.loss >> seen.outputs >> seen.rows;
    CHECK(seen.bits == expected.bits);
    CHECK(seen.loss == Approx(expected.loss).epsilon(1e-6));  // added up over shares, in another order
    CHECK(seen.outputs == Approx(expected.outputs).epsilon(1e-4));
    CHECK(seen.rows == expected.rows);
  }
  auto resumed =
      Trainer{odd_net(clipped_adam), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, LocalTransport{}, 7};
  resumed.fit(OddBatches{}, saving(folder / "run", 2));
  one.fit(OddBatches{}, {.epochs = 2, .initial_epoch = 1, .show = Show::nothing});
  CHECK(tiny::values_of(resumed) == tiny::values_of(one));
}
