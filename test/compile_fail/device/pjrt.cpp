// SPDX-License-Identifier: Apache-2.0
#include <chorale/pjrt/device/shape.hpp>

using namespace chorale;

// expect: compiles
auto images() { return pjrt::shape_of<float>({64, 28, 28}); }

// expect: chorale: PJRT has no element type for this C++ type. Use float, double, bf16, fp16, bool or an integer
auto images() { return pjrt::shape_of<long double>({64, 28, 28}); }
