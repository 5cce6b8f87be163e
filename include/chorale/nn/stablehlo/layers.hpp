// SPDX-License-Identifier: Apache-2.0
//
// How all layers of the library are written in operations, but those that are split over the axes of a mesh.
#pragma once

#include <chorale/nn/stablehlo/activation.hpp>
#include <chorale/nn/stablehlo/attention.hpp>
#include <chorale/nn/stablehlo/convolution.hpp>
#include <chorale/nn/stablehlo/dense.hpp>
#include <chorale/nn/stablehlo/dropout.hpp>
#include <chorale/nn/stablehlo/embedding.hpp>
#include <chorale/nn/stablehlo/merge.hpp>
#include <chorale/nn/stablehlo/normalization.hpp>
#include <chorale/nn/stablehlo/pool.hpp>
#include <chorale/nn/stablehlo/recurrent.hpp>
#include <chorale/nn/stablehlo/reshape.hpp>
