// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of Cuda: products are cuBLASLt's, convolutions cuDNN's, all else is ours. A program that includes it
/// links one .cu file with <chorale/tensor/ops_cuda.cuh> in it, compiled by nvcc.

#include <chorale/tensor/batch_norm_cuda.hpp>
#include <chorale/tensor/conv_pool_cuda.hpp>
#include <chorale/tensor/convolution_cuda.hpp>
#include <chorale/tensor/dense_cuda.hpp>
#include <chorale/tensor/kernels_cuda.hpp>
#include <chorale/tensor/step_cuda.hpp>
