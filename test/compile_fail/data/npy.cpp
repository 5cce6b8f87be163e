// SPDX-License-Identifier: Apache-2.0
#include <chorale/data/formats/npy.hpp>

#include <cstdint>

using namespace chorale;

// expect: compiles
auto const array = data::read_npy<std::uint8_t>("mask.npy");

// expect: chorale: npy files hold numbers of up to 8 bytes. Read bool as std::uint8_t.
auto const array = data::read_npy<bool>("mask.npy");
