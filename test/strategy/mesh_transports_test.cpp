// SPDX-License-Identifier: Apache-2.0
//
// MeshStrategy of three axes over each transport, and of workers that are processes.
#include "test/strategy/mesh.hpp"
#include "test/support/processes.hpp"

#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/simulated.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

using namespace chorale;
using namespace mesh_test;
using chorale::test::Processes;
using chorale::test::Voice;

namespace {

using Across = Axis<"across", 2>;
using Inner  = Axis<"tensor", 2>;
using Cube   = Mesh<Across, Axis<"data", 2>, Inner>;
using Flat   = Mesh<Axis<"data", 2>, Inner>;

auto const clipping = optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F};

Cluster worker(std::vector<std::string> const& addresses, int me) {
  return Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "mesh-" + addresses[0]});
}

/// Trains as one worker of a mesh, and says the loss.
template <class T> void train(Cluster cluster, std::filesystem::path const& folder, Voice voice) {
  auto many          = Trainer{surface<Inner>(clipping), MeshStrategy{Flat{cluster}}, Reproducible<8>{}, T{}, 7};
  auto const history = many.fit(points(), {.epochs = 2, .show = Show::nothing, .checkpoints = {.folder = folder}});
  many.save(folder.string() + "-weights");
  auto line = std::ostringstream{};
  line.precision(17);
  line << history[1].scores.loss();
  voice.say(line.str());
}

std::vector<float> numbers_of(auto& trainer) {
  auto const all = trainer.variables().values;
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("layers split along two axes learn the bits of whole ones, over each transport", "[strategy][mesh][tcp]") {
  auto const begin = Weights{};
  auto const one   = learned_on_one(clipping, begin);
  auto const many  = [&](auto mesh, auto transport) {
    return learned<Inner, Across>(MeshStrategy{mesh}, clipping, begin, Reproducible<8>{}, transport);
  };
  CHECK(many(Cube{Cpu::logical(8)}, LocalTransport{}) == one);
  CHECK(many(Cube{Cluster::local(8), Cpu::logical(1)}, SharedMemoryTransport{}) == one);
  CHECK(many(Cube{Cluster::local(4), Cpu::logical(2)}, TcpTransport{}) == one);
  CHECK(many(Cube{Cpu::logical(8)}, SimulatedTransport{}) == one);
}

TEMPLATE_TEST_CASE("workers that have parts of variables save whole ones", "[strategy][mesh][tcp]", TcpTransport,
                   SharedMemoryTransport) {
  auto const addresses = free_loopback_addresses(4);
  auto const folder    = chorale::test::Folder{};
  auto processes =
      Processes{4, [&](int me, Voice voice) { train<TestType>(worker(addresses, me), folder / "run", voice); }};
  auto losses = std::vector<std::string>{};
  for (int me = 0; me < 4; ++me) losses.push_back(processes.line(me));
  for (int me = 0; me < 4; ++me) CHECK(processes.exit(me) == 0);

  auto one           = on_one_device(clipping);
  auto const history = one.fit(points(), quietly);
  one.save(folder / "whole");
  CHECK(numbers_in(folder / "run-weights") == numbers_in(folder / "whole"));
  for (auto const& loss : losses) {
    INFO(loss);
    CHECK(std::stod(loss) == history[1].scores.loss());
  }
  auto const more = FitOptions{.epochs = 3, .show = Show::nothing, .checkpoints = {.folder = folder / "run"}};
  auto resumed    = on_one_device(clipping);
  resumed.fit(points(), more);
  one.fit(points(), {.epochs = 3, .initial_epoch = 2, .show = Show::nothing});
  CHECK(numbers_of(resumed) == numbers_of(one));
}

TEMPLATE_TEST_CASE("ranks that see the mesh differently refuse each other", "[strategy][mesh][tcp]", TcpTransport,
                   SharedMemoryTransport) {
  auto const addresses = free_loopback_addresses(4);
  auto processes       = Processes{4, [&](int me, Voice) {
                               auto const cluster = worker(addresses, me);
                               if (me != 2) Live{MeshStrategy{Flat{cluster}}, RingAllReduce{}, TestType{}};
                               else
                                 Live{MeshStrategy{Mesh<Inner, Axis<"data", 2>>{cluster}}, RingAllReduce{}, TestType{}};
                             }};
  for (int me = 0; me < 4; ++me) {
    auto const line = processes.line(me);
    CHECK_THAT(line,
               Catch::Contains("mesh axis 0: ") && Catch::Contains("data of 2") && Catch::Contains("tensor of 2"));
    CHECK(processes.exit(me) != 0);
  }
}
