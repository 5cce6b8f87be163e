// SPDX-License-Identifier: Apache-2.0
//
// A library for C and Fortran: the model of 25_surrogate, trained by the ranks of the program's communicator.
#include "surrogate.hpp"

#include <chorale/c/mpi.hpp>

#include <cstdint>

using namespace chorale;

extern "C" int chorale_create(char const* name, int communicator, std::uint64_t seed, chorale_trainer** trainer) {
  return c::create({name, communicator, Seed{seed}}, trainer,
                   c::Model{"surrogate", [](c::Job const& job) { return c::mpi_trainer(surrogate::model(), job); }});
}
