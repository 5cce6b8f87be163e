// cut_along_no_axis.cpp   expect: chorale: no variable has the axis that all are to be cut along
// SPDX-License-Identifier: Apache-2.0
#include <chorale/placement/layout.hpp>
#include <chorale/placement/partitioned.hpp>

#include <array>

using namespace chorale;

static constexpr auto shapes =
    std::array{placement::VariableShape{"a/bias", {64}}, placement::VariableShape{"b/bias", {10}}};
constexpr auto& layout = placement::layout_of<placement::Partitioned<placement::FixedShards<3, 1>>, shapes, 2>;
