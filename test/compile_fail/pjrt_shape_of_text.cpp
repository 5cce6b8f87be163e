// pjrt_shape_of_text.cpp   expect: chorale: PJRT has no element type for this C++ type. Use float, double, bf16, fp16, bool or an integer
// SPDX-License-Identifier: Apache-2.0
#include <chorale/device/pjrt/shape.hpp>

auto const shape = chorale::pjrt::shape_of<char const*>({2, 3});
