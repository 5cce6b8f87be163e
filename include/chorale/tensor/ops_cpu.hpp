// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of Cpu. Products, convolutions, pools and activations are oneDNN's, in the layouts that it likes best; each
/// class asks once, for one number of rows, and then executes without choosing again.

#include <chorale/tensor/batch_norm_cpu.hpp>
#include <chorale/tensor/conv_pool_cpu.hpp>
#include <chorale/tensor/dense_cpu.hpp>
#include <chorale/tensor/kernels_cpu.hpp>
#include <chorale/tensor/windows_cpu.hpp>
