// server_update_of_number.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/strategy/parameter_server/server_update.hpp>

using namespace chorale;

auto made() {
  return parameter_server::known(ServerUpdate{"say", [](ServerValues, int) {}});
}
