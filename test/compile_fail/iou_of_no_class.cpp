// iou_of_no_class.cpp   expect: chorale: metric::MeanIoU<Classes> needs at least 1 class
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = metric::MeanIoU<0>{};
