// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program includes that asks before it trains: advise(), estimates of time and bytes, the memory of a network.

#include <chorale/chorale.hpp>

#include <chorale/advice/advise.hpp>
#include <chorale/advice/advise_forms.hpp>
#include <chorale/advice/estimate.hpp>
#include <chorale/advice/network_memory.hpp>
#include <chorale/advice/training_form.hpp>
