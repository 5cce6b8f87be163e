// SPDX-License-Identifier: Apache-2.0
//
// How all layers of the library are written in operations, but those that are split over the axes of a mesh.
#pragma once

#include <chorale/nn/lowering/activation.hpp>
#include <chorale/nn/lowering/attention.hpp>
#include <chorale/nn/lowering/convolution.hpp>
#include <chorale/nn/lowering/dense.hpp>
#include <chorale/nn/lowering/dropout.hpp>
#include <chorale/nn/lowering/embedding.hpp>
#include <chorale/nn/lowering/merge.hpp>
#include <chorale/nn/lowering/normalization.hpp>
#include <chorale/nn/lowering/pool.hpp>
#include <chorale/nn/lowering/recurrent.hpp>
#include <chorale/nn/lowering/reshape.hpp>
