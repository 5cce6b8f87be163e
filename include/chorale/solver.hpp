// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program includes that trains beside a simulation: OnlineTraining, derivatives of a network by its inputs, and
/// retarget() for jobs that change their size. From C and Fortran: chorale/c.

#include <chorale/chorale.hpp>

#include <chorale/nn/derivatives/derivatives.hpp>
#include <chorale/nn/derivatives/gradient_error.hpp>
#include <chorale/trainer/online.hpp>
#include <chorale/trainer/retarget.hpp>
