// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/axes.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorale {

/// A window that slides over an image: convolutions and pools. Sizes in pixels; images are (B, H, W, C).
struct Window {
  int height = 0, width = 0, channels = 0;  // of the input image
  int kernel = 1, stride = 1;               // square windows, unless `columns` says else
  int pad_before = 0, pad_after = 0;        // rows; columns have separate pads
  int pad_left = 0, pad_right = 0;
  int columns  = 0;  // of the kernel; 0: as many as rows
  int dilation = 1;  // distance between pixels of the kernel
  int groups   = 1;  // channels of a kernel: 1 / groups of all

  constexpr int kernel_width() const { return columns == 0 ? kernel : columns; }
  constexpr int out_height() const { return (height + pad_before + pad_after - reach(kernel)) / stride + 1; }
  constexpr int out_width() const { return (width + pad_left + pad_right - reach(kernel_width())) / stride + 1; }

 private:
  constexpr int reach(int size) const { return (size - 1) * dilation + 1; }  // pixels from the first to the last
};

enum class Pool { max, average };
enum class Activation { relu, leaky_relu, elu, tanh, sigmoid, softplus, gelu, silu, gelu_tanh };

/// Type to which products of matrices and convolutions may round their factors; they accumulate in float. Activations,
/// variables and gradients are float with each of them. A device without a faster way is more exact.
///
///   f32     not rounded
///   tf32    11 bits of precision: GPUs; at least as many on PJRT devices
///   bf16    8 bits: PJRT devices; GPUs, except for convolutions of more than one pixel, which take tf32; CPUs with AMX
///   fp16    11 bits, and only 6e-8 to 65504, so the loss is scaled (optim::LossScaled): PJRT devices, and GPUs with the
///           same exception
///
/// source  oneDNN's floating-point math mode; PyTorch's fp32_precision
enum class Products { f32, tf32, bf16, fp16 };

constexpr std::string_view text_of(Products products) {
  return std::array<std::string_view, 4>{"f32", "tf32", "bf16", "fp16"}.at(static_cast<std::size_t>(products));
}

/// Type in which activations and their gradients are stored between the layers of a network. Variables, their gradients
/// and the output are float with each of them. A device that only rounds products keeps float.
enum class Elements { f32, bf16, fp16 };

constexpr std::string_view text_of(Elements elements) {
  return std::array<std::string_view, 3>{"f32", "bf16", "fp16"}.at(static_cast<std::size_t>(elements));
}

/// Rows over which batch normalization computes its statistics: a replica's share, or the whole batch.
enum class Normalize { over_share, over_batch };

/// True if f'(x) follows from f(x), so that x itself need not be kept.
constexpr bool differentiates_from_y(Activation f) {
  return f != Activation::softplus && f != Activation::gelu && f != Activation::silu && f != Activation::gelu_tanh;
}

/// Sums a layer's numbers in the middle of a step: over all replicas, set by the replica, or over the slices of a share
/// that a device computes on several threads, set by the executor. By default there is one replica or slice.
///
/// order   every replica, even one without rows, calls it equally often, with as many numbers: the same bits on all
struct Together {
  void (*all_reduce)(void* replica, Span<double> sums) = nullptr;
  void* replica                                        = nullptr;

  void operator()(Span<double> sums) const {
    if (all_reduce != nullptr) all_reduce(replica, sums);
  }
};

/// The part of a pass that changes from step to step.
struct StepNumbers {
  Seed seed             = {};
  std::uint64_t step    = 0;  // of the optimizer; 0-based
  std::size_t first_row = 0;  // of this share within the global batch

  /// Seed of the random numbers of this step.
  constexpr Seed drawn() const { return Seed{seed.value ^ (step + 1) * 0x9e3779b97f4a7c15ULL}; }
};

/// The settings of one pass over a batch.
struct Pass {
  bool training                = false;
  StepNumbers now              = {};
  Together together            = {};          // for layers that need all replicas
  Together share               = {};          // for layers that need all rows of the share
  std::size_t first_of_share   = 0;           // first row of this slice within its share
  StepNumbers const* on_device = nullptr;     // `now`, for a device that QueuesWork
  float loss_scale             = 1;           // by which gradients are multiplied
  bool by_variables = true, by_input = true;  // what backward is for; a layer that ignores
                                              // this computes both
  AxisGroups axes         = {};               // for layers that are split over ranks
  bool in_shards          = false;            // the rows are one logical shard of a batch
  Span<char const> frozen = {};               // for each variable, 1: it keeps its value;
                                              // empty: none does
};

/// Destination of a sum over rows.
struct SumOfRows {
  float* of_row;  // scratch: a number for each row
  float* sum;
};

/// Addresses of a kernel's operands. Bound once; forward and backward then take no addresses.
///
/// x, y      input and output; equal for kernels that work in place
/// dx, dy    gradients of the loss by x and y; dx is null where it is not needed
struct Ports {
  float* x             = nullptr;
  float* y             = nullptr;
  float* dx            = nullptr;
  float* dy            = nullptr;
  float* kernel        = nullptr;  // variables of the layer, if it has them
  float* bias          = nullptr;
  float* d_kernel      = nullptr;  // and their gradients
  float* d_bias        = nullptr;
  float* mean          = nullptr;  // moving statistics, if the layer has them
  float* variance      = nullptr;
  float* d_mean        = nullptr;  // and, times rows, the targets they move to
  float* d_variance    = nullptr;
  float* other         = nullptr;  // of a sum: the input that is added to x
  float* d_other       = nullptr;  // and the gradient by it; of a fork, too
  std::byte* workspace = nullptr;  // workspace() bytes, 64-byte aligned
};

/// The kernels of one device: the only code that computes with tensors. Specialised in cpu/ and cuda/.
///
///   layout      how one activation is stored; a kernel chooses it for its output, and the next kernel reads it
///   runtime     what the kernels of one replica share: an engine and a queue, and `rounds_to`
///   Conv2D, Pool2D, ConvPool, Dense, Activate, Softmax, BatchNorm, Sum, ToRows
///               classes made once per number of rows: (runtime, layout in, rows, ...), then out(), workspace(),
///               bind(Ports), read_from(x), forward(), backward(); the last three allocate nothing of ours
///   sgd, adam   update rules over flat arrays
///   sparse_cross_entropy, cross_entropy, squared_error, and for Cpu the first two _of_probabilities
///               loss over rows and its gradient
///   ToPlain     a class like those, from any layout to rows of float; ToActivations, where halves are kept, the reverse
///   copy, add   an activation to another place, or to another activation
///   multiply    numbers by one number
///   move        moving averages and tracked variables; Scratch is memory that only kernels read
///   Step        of a device that QueuesWork
template <class D> struct Kernels;

/// A device whose kernels only queue their work. Losses and checks write their results to Kernels<D>::Step, for the
/// host to read after it has waited.
template <class D> concept QueuesWork = requires { typename Kernels<D>::Step; };

}  // namespace chorale
