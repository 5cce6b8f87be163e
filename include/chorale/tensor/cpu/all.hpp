// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of Cpu. Products, convolutions, pools and activations are oneDNN's, in the layouts that it prefers; each
/// class asks for them once, for one number of rows, and then executes without choosing again.

#include <chorale/tensor/cpu/batch_norm.hpp>
#include <chorale/tensor/cpu/conv_pool.hpp>
#include <chorale/tensor/cpu/convolution.hpp>
#include <chorale/tensor/cpu/deconvolution.hpp>
#include <chorale/tensor/cpu/dense.hpp>
#include <chorale/tensor/cpu/kernels.hpp>
