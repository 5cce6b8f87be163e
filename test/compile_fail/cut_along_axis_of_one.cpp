// cut_along_axis_of_one.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/placement/layout.hpp>
#include <chorale/placement/partitioned.hpp>

#include <array>

using namespace chorale;

static constexpr auto shapes =
    std::array{placement::VariableShape{"a/kernel", {9, 64}}, placement::VariableShape{"a/bias", {64}}};
constexpr auto& layout = placement::layout_of<placement::Partitioned<placement::FixedShards<3, 1>>, shapes, 2>;
