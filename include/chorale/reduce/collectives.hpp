// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Collective operations other than all-reduce, each with its own schedule on the same engine; and single messages.

#include <chorale/reduce/collectives/all_to_all.hpp>
#include <chorale/reduce/collectives/barrier.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/collectives/point_to_point.hpp>
