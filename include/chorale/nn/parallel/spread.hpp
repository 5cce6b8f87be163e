// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Distribution types of values in a network: what the ranks along an axis of a mesh have of them. A header of layers
/// that are split over an axis includes this one. See docs/44-distribution.md.

#include <chorale/nn/parallel/distribution/call.hpp>
#include <chorale/nn/parallel/distribution/conversions.hpp>
#include <chorale/nn/parallel/distribution/outputs.hpp>
#include <chorale/nn/parallel/distribution/spread.hpp>
#include <chorale/nn/parallel/distribution/types.hpp>
