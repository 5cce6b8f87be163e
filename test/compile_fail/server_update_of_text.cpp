// server_update_of_text.cpp   expect: chorale: arguments and result of a ServerUpdate are plain data, such as numbers and structs of them
// SPDX-License-Identifier: Apache-2.0
#include <chorale/strategy/parameter_server/server_update.hpp>

using namespace chorale;

auto made() {
  return parameter_server::known(ServerUpdate{"say", [](ServerValues, std::string const&) {}});
}
