// server_update_of_float.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/strategy/parameter_server/server_update.hpp>

using namespace chorale;

auto const made = ServerUpdate{"scale", [](ServerValues, float) {}};
