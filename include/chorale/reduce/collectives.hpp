// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything that ranks do together beside an all-reduce; each on the same engine, by a schedule of its own.

#include <chorale/reduce/collectives/all_to_all.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/collectives/point_to_point.hpp>
