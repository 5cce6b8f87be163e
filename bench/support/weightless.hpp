// SPDX-License-Identifier: Apache-2.0
//
// Lets algorithms reduce numbers that take no room: see chorale::NoData.
#pragma once

#include <chorale/reduce/combine.hpp>
#include <chorale/transport/simulated/sizes_only.hpp>

template <> inline constexpr chorale::Element chorale::element_of<chorale::NoData> = chorale::Element::f32;
