// SPDX-License-Identifier: Apache-2.0
//
// Our own CUDA kernels. Included by one .cu file of a program, and by nothing else; nvcc needs --extended-lambda and
// --expt-relaxed-constexpr. All that is not a kernel is compiled by the host compiler: in C++20, nvcc's front end gives
// up on oneDNN's header, and with it on chorale.hpp.
#pragma once

#include <chorale/tensor/cuda/batch_norm.cuh>
#include <chorale/tensor/cuda/conv_pool.cuh>
#include <chorale/tensor/cuda/elementwise.cuh>
#include <chorale/tensor/cuda/loops.cuh>
#include <chorale/tensor/cuda/sequences.cuh>
