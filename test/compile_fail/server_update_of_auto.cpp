// server_update_of_auto.cpp   expect: chorale: the function of a ServerUpdate is called as f(ServerValues, arguments...) const, and its arguments have named types: no auto
// SPDX-License-Identifier: Apache-2.0
#include <chorale/strategy/parameter_server/server_update.hpp>

using namespace chorale;

auto const made = ServerUpdate{"scale", [](ServerValues, auto) {}};
