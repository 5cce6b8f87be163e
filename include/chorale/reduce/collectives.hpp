// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything that ranks do together beside an all-reduce; each on the same engine, by a schedule of its own.

#include <chorale/reduce/all_to_all.hpp>
#include <chorale/reduce/barrier.hpp>
#include <chorale/reduce/gather.hpp>
#include <chorale/reduce/message.hpp>
#include <chorale/reduce/rooted.hpp>
