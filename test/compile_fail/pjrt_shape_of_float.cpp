// pjrt_shape_of_float.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/device/pjrt/shape.hpp>

auto const shape = chorale::pjrt::shape_of<float>({2, 3});
