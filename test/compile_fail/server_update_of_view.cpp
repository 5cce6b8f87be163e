// server_update_of_view.cpp   expect: chorale: arguments and result of a ServerUpdate are plain data, such as numbers and structs of them
// SPDX-License-Identifier: Apache-2.0
#include <chorale/strategy/parameter_server/server_update.hpp>

#include <string_view>

using namespace chorale;

auto made() {
  return parameter_server::known(ServerUpdate{"say", [](ServerValues, std::string_view) {}});
}
