// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include "test/compile_fail/gpu.hpp"

using namespace chorale;

// expect: compiles
void update(optim::Update const& u) { optim::Adagrad{}.update<Cpu>(u); }

// expect: chorale: optim::Adagrad runs on CPUs only. On a GPU use optim::Adam
void update(optim::Update const& u) { optim::Adagrad{}.update<Gpu>(u); }

// expect: compiles
void update(optim::Update const& u) { optim::Averaged{optim::SGD{}}.update<Cpu>(u); }

// expect: chorale: optim::Averaged runs on CPUs only. Use the optimizer that it contains, or a strategy over Cpu
void update(optim::Update const& u) { optim::Averaged{optim::SGD{}}.update<Gpu>(u); }

// expect: compiles
void update(optim::Update const& u) { optim::Lamb{}.update_variable<Cpu>(u); }

// expect: chorale: optim::Lamb runs on CPUs only. On a GPU use optim::AdamW
void update(optim::Update const& u) { optim::Lamb{}.update_variable<Gpu>(u); }

// expect: compiles
void update(optim::Update const& u) { optim::Lion{}.update<Cpu>(u); }

// expect: chorale: optim::Lion runs on CPUs only. On a GPU use optim::AdamW
void update(optim::Update const& u) { optim::Lion{}.update<Gpu>(u); }

// expect: compiles
void update(optim::Update const& u) { optim::Nadam{}.update<Cpu>(u); }

// expect: chorale: optim::Nadam runs on CPUs only. On a GPU use optim::Adam
void update(optim::Update const& u) { optim::Nadam{}.update<Gpu>(u); }

// expect: compiles
void update(optim::Update const& u) { optim::RMSprop{}.update<Cpu>(u); }

// expect: chorale: optim::RMSprop runs on CPUs only. On a GPU use optim::Adam
void update(optim::Update const& u) { optim::RMSprop{}.update<Gpu>(u); }
