// SPDX-License-Identifier: Apache-2.0
#include <chorale/c/library.hpp>
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<3>, nn::Dense<2>> {};
using Points = BasicBatch<float, float>;

// expect: compiles
int make(c::Job const& job, chorale_trainer** trainer) {
  return c::create(job, trainer, c::Model{"net", [](c::Job const& asked) {
                                            return c::alone(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}),
                                                            asked);
                                          }});
}

// expect: chorale: a library for C has models of networks that are an nn::Sequential
int make(c::Job const& job, chorale_trainer** trainer) {
  return c::create(job, trainer, c::Model{"sum", [](c::Job const& asked) {
                                            return c::alone(custom_model<Points>(
                                                                {{"offset"}}, [](auto&, Points const&) { return 0.0F; },
                                                                optim::SGD{}),
                                                            asked);
                                          }});
}
