// SPDX-License-Identifier: Apache-2.0
//
// The kernels of a program: the one file of it that nvcc compiles.
#include <chorale/tensor/cuda/all.cuh>
