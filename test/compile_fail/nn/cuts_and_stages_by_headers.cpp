// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: compiles
#include <array>
#include <chorale/placement/layout.hpp>
#include <chorale/placement/partitioned.hpp>

static constexpr auto shapes =
    std::array{placement::VariableShape{"a/kernel", {9, 64}}, placement::VariableShape{"a/bias", {64}}};
constexpr auto& layout = placement::layout_of<placement::Partitioned<placement::FixedShards<3, 1>>, shapes, 2>;

// expect: chorale: no variable has the axis that all are to be cut along
#include <array>
#include <chorale/placement/layout.hpp>
#include <chorale/placement/partitioned.hpp>

static constexpr auto shapes =
    std::array{placement::VariableShape{"a/bias", {64}}, placement::VariableShape{"b/bias", {10}}};
constexpr auto& layout = placement::layout_of<placement::Partitioned<placement::FixedShards<3, 1>>, shapes, 2>;

// expect: chorale: the first argument of Partitioned says how a variable is cut
#include <chorale/placement/partitioned.hpp>

placement::Partitioned<placement::GreedyByBytes> sharding;

// expect: compiles
#include <chorale/placement/partitioned.hpp>

placement::Partitioned<placement::MaxSize<1024>, placement::GreedyByBytes> sharding;
