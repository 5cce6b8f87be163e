// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: chorale: the function of a ServerUpdate is called as f(ServerValues, arguments...) const, and its arguments have named types: no auto
#include <chorale/strategy/parameter_server/server_update.hpp>

auto const made = ServerUpdate{"scale", [](ServerValues, auto) {}};

// expect: compiles
#include <chorale/strategy/parameter_server/server_update.hpp>

auto const made = ServerUpdate{"scale", [](ServerValues, float) {}};

// expect: compiles
#include <chorale/strategy/parameter_server/server_update.hpp>

auto made() {
  return parameter_server::known(ServerUpdate{"say", [](ServerValues, int) {}});
}

// expect: chorale: arguments and result of a ServerUpdate are plain data, such as numbers and structs of them
#include <chorale/strategy/parameter_server/server_update.hpp>

auto made() {
  return parameter_server::known(ServerUpdate{"say", [](ServerValues, std::string const&) {}});
}

// expect: chorale: arguments and result of a ServerUpdate are plain data, such as numbers and structs of them
#include <chorale/strategy/parameter_server/server_update.hpp>
#include <string_view>

auto made() {
  return parameter_server::known(ServerUpdate{"say", [](ServerValues, std::string_view) {}});
}
