// SPDX-License-Identifier: Apache-2.0
//
// Functions that workers and a coordinator have servers call with related variables.
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/coordinator.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

using namespace chorale;

namespace {

struct Net : nn::Sequential<nn::Input<4>, nn::Dense<4>, nn::Dense<3>> {};

auto model() { return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}); }

/// Moves `by` from every number of one variable to every number of another one, and returns the first of each.
struct Both {
  float first, second;
};
auto const move  = ServerUpdate{"move", [](ServerValues values, float by) {
                                 for (auto& x : values[0]) x += by;
                                 for (auto& x : values[1]) x -= by;
                                 return Both{values[0][0], values[1][0]};
                               }};
auto const spoil = ServerUpdate{"spoil", [](ServerValues values) {
                                  for (auto& x : values[0]) x = 99;
                                  throw std::runtime_error{"it changed its mind"};
                                }};
auto const drop  = ServerUpdate{"drop", [](ServerValues values) {
                                 values[0][0] = 99;
                                 throw 7;  // no std::exception
                               }};

std::string name(std::size_t i) { return std::string{std::string_view{Net::plan.variables[i].name}}; }
float value(Variables const& variables, std::size_t i) { return variables[i].value[0]; }

}  // namespace

TEST_CASE("an update of related variables is one change for every worker", "[strategy][servers][update]") {
  auto const servers = GENERATE(1, 2);
  auto const strategy =
      ParameterServerStrategy{Cluster::local(3, servers), Asynchronous{}, placement::RoundRobin{}}.with_updates(move,
                                                                                                                spoil);
  auto live    = Live{strategy, RingAllReduce{}, LocalTransport{}};
  auto copies  = live.create(model(), 3);
  auto const a = name(0), b = name(servers == 1 ? 1 : 2);  // of the same server
  auto const second = servers == 1 ? std::size_t{1} : std::size_t{2};
  auto sums         = live.run(
      [&](auto& replica, auto& copy) {
        auto const& v  = copy.net.variables();
        auto const sum = value(v, 0) + value(v, second);
        auto torn      = 0;
        for (int i = 0; i < 40; ++i) {
          auto const both = replica.update_on_server(v, move, {a, b}, 0.25F);
          replica.pull(v);
          auto const near = [&](float x) { return std::abs(x - sum) < 0.01F; };  // half a change is 0.25
          torn += near(both.first + both.second) && near(value(v, 0) + value(v, second)) ? 0 : 1;
        }
        replica.barrier();
        replica.pull(v);
        return Sum<float>{value(v, 0), torn};
      },
      copies);
  auto const first = model().instantiate(Cpu::logical(1)[0], 3);
  for (auto const& sum : sums) {
    CHECK(sum.count == 0);
    CHECK(sum.value == Approx(value(first.net.variables(), 0) + 3 * 40 * 0.25F));
  }
}

TEST_CASE("an update that throws changes nothing, and one that cannot be is a sentence",
          "[strategy][servers][update]") {
  auto const strategy =
      ParameterServerStrategy{Cluster::local(1, 2), Synchronous{}, placement::RoundRobin{}}.with_updates(move, spoil,
                                                                                                         drop);
  auto live   = Live{strategy, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(model(), 3);
  live.run(
      [&](auto& replica, auto& copy) {
        auto const& v     = copy.net.variables();
        auto const before = std::vector<float>(v.values.begin(), v.values.end());
        CHECK_THROWS_WITH(replica.update_on_server(v, spoil, {name(0)}),
                          Catch::Contains("update \"spoil\" on server 0 changed nothing: it changed its mind"));
        CHECK_THROWS_WITH(replica.update_on_server(v, drop, {name(0)}),
                          Catch::Contains("changed nothing: something that is no"));
        CHECK_THROWS_WITH(replica.update_on_server(v, move, {name(0), name(1)}, 1.0F),
                          Catch::Contains("on server 0 and") && Catch::Contains("no server can change both as one"));
        CHECK_THROWS_WITH(replica.update_on_server(v, move, {name(0), "nothing"}, 1.0F),
                          Catch::Contains("\"nothing\", which is none of the 4 variables"));
        CHECK_THROWS_WITH(replica.update_on_server(v, move, {name(0), name(0)}, 1.0F), Catch::Contains("twice"));
        replica.pull(v);
        CHECK(std::vector<float>(v.values.begin(), v.values.end()) == before);
        CHECK(replica.update_on_server(v, move, {name(0), name(2)}, 1.0F).first == value(v, 0) + 1);  // it goes on
        auto const unknown = ServerUpdate{"move", [](ServerValues, int) {}};
        CHECK_THROWS_WITH(replica.update_on_server(v, unknown, {name(0)}, 1),
                          Catch::Contains("no update of that name"));
      },
      copies);
}

TEST_CASE("two updates that a server could not tell apart are refused", "[strategy][servers][update]") {
  auto const strategy = ParameterServerStrategy{Cluster::local(1, 1)}.with_updates(move);
  auto const other    = ServerUpdate{"move", [](ServerValues, float) { return Both{}; }};
  CHECK_THROWS_WITH(strategy.with_updates(other), Catch::Contains("two updates are called \"move\""));
  CHECK(strategy.with_updates(spoil).updates().size() == 2);
  CHECK(strategy.with_updates(ServerUpdate{"move", [](ServerValues) {}}).updates().size() == 2);
}

TEST_CASE("a coordinator and its closures call updates on servers", "[strategy][coordinator][update]") {
  auto const push = Closure{"push", [](auto& here, int times) {
                              for (int i = 0; i < times; ++i) here.update_on_server(move, {name(0), name(2)}, 1.0F);
                              return times;
                            }};
  auto const strategy =
      ParameterServerStrategy{Cluster::local(3, 2), Asynchronous{}, placement::RoundRobin{}}.with_updates(move);
  coordinate(
      strategy, model(), LocalTransport{}, std::tuple{push},
      [&](auto& coordinator, auto& here) {
        here.pull();
        auto const before = value(here.model().net.variables(), 0), other = value(here.model().net.variables(), 2);
        auto done = std::vector<RemoteValue<int>>{};
        for (int i = 0; i < 6; ++i) done.push_back(coordinator.schedule(push, 5));
        coordinator.join();
        auto const both = here.update_on_server(move, {name(0), name(2)}, 2.0F);
        here.pull();
        CHECK(value(here.model().net.variables(), 0) == Approx(before + 32));
        CHECK(both.first == value(here.model().net.variables(), 0));
        CHECK(both.second == Approx(other - 32));
      },
      5);
}
