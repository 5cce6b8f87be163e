// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of Cuda: products are cuBLASLt's, convolutions cuDNN's, all else is ours. A program that includes it
/// links one .cu file with <chorale/tensor/cuda/all.cuh> in it, compiled by nvcc.

#include <chorale/tensor/cuda/batch_norm.hpp>
#include <chorale/tensor/cuda/conv_pool.hpp>
#include <chorale/tensor/cuda/convolution.hpp>
#include <chorale/tensor/cuda/dense.hpp>
#include <chorale/tensor/cuda/kernels.hpp>
#include <chorale/tensor/cuda/step.hpp>
