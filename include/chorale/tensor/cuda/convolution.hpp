// SPDX-License-Identifier: Apache-2.0
//
// Convolutions on a GPU, by cuDNN or as products; empty where the compiler does not find cuBLAS and cuDNN.
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/device/cuda_stream.hpp>
#include <chorale/tensor/cuda/dense.hpp>
#include <chorale/tensor/cuda/kernels.hpp>
#include <chorale/tensor/cuda/launch.hpp>
#include <chorale/tensor/cuda/runtime.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <variant>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale {

/// A convolution by cuDNN, of any kernel, stride and pads: see Conv2D.
///
/// kernel    each forward transposes it for cuDNN to (Filters, K, K, C), in the element type of x
/// cost      one pass over y for the bias; where pads differ on the two sides, one over x, and dx, for a padded copy
/// order     the same bits every time, unless cuDNN has no such algorithm for a shape
/// source    cudnnConvolutionForward, BackwardFilter, BackwardData
class Kernels<Cuda>::Windows {
 public:
  Windows(runtime& rt, layout const& in, int rows, Window const& w, int filters)
      : rt_{&rt}, in_{in}, own_{in}, out_{rows, w.out_height(), w.out_width(), filters, in.of}, window_{w} {
    even_ = w.pad_before == w.pad_after && w.pad_left == w.pad_right;
    if (!even_) {
      own_.height += w.pad_before + w.pad_after;
      own_.width += w.pad_left + w.pad_right;
    }
    describe(filters);
    choose();
  }

  layout out() const { return out_; }
  std::size_t workspace() const {
    auto cut = cuda::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut = cuda::Cutter{p.workspace};
    at_      = place(cut);
    p_       = p;
    relu_    = p.bias == nullptr ? 0 : rt_->take_relu(p.y);
  }

  void read_from(float const* x) { p_.x = const_cast<float*>(x); }  // only read

  void forward(Pass const&) const {
    if (!even_) shift(in_, p_.x, window_.pad_before, window_.pad_left, own_, at_.x);
    turn(patch(), filters(), {p_.kernel}, half(at_.kernel));
    cuda::expect(cudnnConvolutionForward(rt_->images(), &one, x_.get(), x(), kernel_.get(), at_.kernel, how_.get(),
                                         forward_, at_.scratch, forward_bytes_, &zero, y_.get(), p_.y),
                 "cudnnConvolutionForward");
    if (p_.bias != nullptr)
      cuda::expect(cuda::launch::add_bias(out_.pixels(), filters(), p_.bias, out_.at(p_.y), relu_, cuda::queue()),
                   "add_bias");
  }

  void backward(Pass const&) const {
    cuda::expect(
        cudnnConvolutionBackwardFilter(rt_->images(), &one, x_.get(), x(), y_.get(), p_.dy, how_.get(), filter_,
                                       at_.scratch, filter_bytes_, &zero, kernel_.get(), at_.d_kernel),
        "cudnnConvolutionBackwardFilter");
    turn(filters(), patch(), half(at_.d_kernel), {p_.d_kernel});
    if (p_.bias != nullptr)
      cuda::expect(
          cuda::launch::column_sums(out_.pixels(), filters(), out_.at(p_.dy), at_.sums, p_.d_bias, cuda::queue()),
          "column_sums");
    if (p_.dx == nullptr) return;
    auto* const dx = even_ ? static_cast<void*>(p_.dx) : at_.x;  // x is not needed any more
    cuda::expect(cudnnConvolutionBackwardData(rt_->images(), &one, kernel_.get(), at_.kernel, y_.get(), p_.dy,
                                              how_.get(), data_, at_.scratch, data_bytes_, &zero, x_.get(), dx),
                 "cudnnConvolutionBackwardData");
    if (!even_) shift(own_, dx, -window_.pad_before, -window_.pad_left, in_, p_.dx);
  }

 private:
  static constexpr float one = 1, zero = 0;
  static constexpr std::size_t most_scratch = std::size_t{256} << 20;  // bytes

  struct Places {
    std::byte *x, *kernel, *d_kernel;  // in the element type of x; x: padded
    float* sums;
    std::byte* scratch;
  };
  Places place(cuda::Cutter& cut) const {
    auto const parts = cuda::launch::partials_of(filters());
    return {even_ ? nullptr : cut.take(own_.bytes()), cut.take_values(patch() * filters(), in_.of),
            cut.take_values(patch() * filters(), in_.of), cut.take_floats(parts * filters()),
            cut.take(std::max({forward_bytes_, filter_bytes_, data_bytes_}))};
  }

  std::size_t filters() const { return static_cast<std::size_t>(out_.channels); }
  std::size_t patch() const { return static_cast<std::size_t>(window_.kernel * window_.kernel * window_.channels); }
  void const* x() const { return even_ ? static_cast<void const*>(p_.x) : at_.x; }
  cuda::launch::Values half(std::byte* kernel) const { return {kernel, in_.of}; }

  static void turn(std::size_t rows, std::size_t columns, cuda::launch::Values from, cuda::launch::Values to) {
    cuda::expect(cuda::launch::transpose(rows, columns, from, to, cuda::queue()), "transpose");
  }
  static void shift(layout const& from, void const* x, int down, int right, layout const& to, void* y) {
    cuda::expect(cuda::launch::shift(static_cast<std::size_t>(from.rows), from.channels, {from.height, from.width},
                                     from.at(x), down, right, {to.height, to.width}, to.at(y), cuda::queue()),
                 "shift");
  }

  using Tensor = cuda::Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;

  static cudnnDataType_t type(Elements of) {
    switch (of) {
      case Elements::f32: return CUDNN_DATA_FLOAT;
      case Elements::bf16: return CUDNN_DATA_BFLOAT16;
      case Elements::fp16: return CUDNN_DATA_HALF;
    }
    return CUDNN_DATA_FLOAT;
  }
  static Tensor tensor(layout const& l) {
    cudnnTensorDescriptor_t made = nullptr;
    cuda::expect(cudnnCreateTensorDescriptor(&made), "cudnnCreateTensorDescriptor");
    auto owned = Tensor{made};
    cuda::expect(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NHWC, type(l.of), l.rows, l.channels, l.height, l.width),
                 "cudnnSetTensor4dDescriptor");
    return owned;
  }

  void describe(int filters) {
    x_                             = tensor(own_);
    y_                             = tensor(out_);
    cudnnFilterDescriptor_t kernel = nullptr;
    cuda::expect(cudnnCreateFilterDescriptor(&kernel), "cudnnCreateFilterDescriptor");
    kernel_.reset(kernel);
    cuda::expect(cudnnSetFilter4dDescriptor(kernel, type(in_.of), CUDNN_TENSOR_NHWC, filters, window_.channels,
                                            window_.kernel, window_.kernel),
                 "cudnnSetFilter4dDescriptor");
    cudnnConvolutionDescriptor_t how = nullptr;
    cuda::expect(cudnnCreateConvolutionDescriptor(&how), "cudnnCreateConvolutionDescriptor");
    how_.reset(how);
    cuda::expect(cudnnSetConvolution2dDescriptor(how, even_ ? window_.pad_before : 0, even_ ? window_.pad_left : 0,
                                                 window_.stride, window_.stride, 1, 1, CUDNN_CROSS_CORRELATION,
                                                 CUDNN_DATA_FLOAT),
                 "cudnnSetConvolution2dDescriptor");
    auto const whole = rt_->rounds_to == Products::f32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;  // which is TF32
    auto const math  = in_.of == Elements::f32 ? whole : CUDNN_TENSOR_OP_MATH;
    cuda::expect(cudnnSetConvolutionMathType(how, math), "cudnnSetConvolutionMathType");
  }

  /// Picks the first algorithm of cuDNN's list, fastest first, that gives the same bits every time; else the first that
  /// can run.
  ///
  /// list      fills an array of results: (most results, count, results)
  /// scratch   gives the bytes that an algorithm needs, or fails if it cannot run: (algorithm, bytes)
  template <class Result, class Algorithm, class List, class Scratch>
  static void pick(std::string const& what, Algorithm& algorithm, std::size_t& bytes, List list, Scratch scratch) {
    auto results = std::array<Result, 16>{};
    int count    = 0;
    cuda::expect(list(static_cast<int>(results.size()), &count, results.data()), "cudnnGetConvolution" + what);
    for (bool const fixed : {true, false})
      for (int i = 0; i < count; ++i) {
        auto const& result = results[static_cast<std::size_t>(i)];
        if (result.status != CUDNN_STATUS_SUCCESS || (fixed && result.determinism != CUDNN_DETERMINISTIC)) continue;
        if (scratch(result.algo, &bytes) != CUDNN_STATUS_SUCCESS || bytes > most_scratch) continue;
        algorithm = result.algo;
        return;
      }
    throw Error{"cuDNN has no algorithm for the " + what + " of this convolution within " +
                    std::to_string(most_scratch >> 20) + " MiB.",
                "fewer rows a replica, or another kernel size."};
  }

  void choose() {
    auto const cudnn = rt_->images();
    pick<cudnnConvolutionFwdAlgoPerf_t>(
        "Forward", forward_, forward_bytes_,
        [&](int most, int* count, auto* results) {
          return cudnnGetConvolutionForwardAlgorithm_v7(cudnn, x_.get(), kernel_.get(), how_.get(), y_.get(), most,
                                                        count, results);
        },
        [&](auto algorithm, std::size_t* bytes) {
          return cudnnGetConvolutionForwardWorkspaceSize(cudnn, x_.get(), kernel_.get(), how_.get(), y_.get(),
                                                         algorithm, bytes);
        });
    pick<cudnnConvolutionBwdFilterAlgoPerf_t>(
        "BackwardFilter", filter_, filter_bytes_,
        [&](int most, int* count, auto* results) {
          return cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnn, x_.get(), y_.get(), how_.get(), kernel_.get(),
                                                               most, count, results);
        },
        [&](auto algorithm, std::size_t* bytes) {
          return cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnn, x_.get(), y_.get(), how_.get(), kernel_.get(),
                                                                algorithm, bytes);
        });
    pick<cudnnConvolutionBwdDataAlgoPerf_t>(
        "BackwardData", data_, data_bytes_,
        [&](int most, int* count, auto* results) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnn, kernel_.get(), y_.get(), how_.get(), x_.get(), most,
                                                             count, results);
        },
        [&](auto algorithm, std::size_t* bytes) {
          return cudnnGetConvolutionBackwardDataWorkspaceSize(cudnn, kernel_.get(), y_.get(), how_.get(), x_.get(),
                                                              algorithm, bytes);
        });
  }

  runtime* rt_;
  layout in_, own_, out_;  // own: with padding, where that is uneven
  Window window_;
  bool even_ = true;
  int relu_  = 0;
  Tensor x_, y_;
  cuda::Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor> kernel_;
  cuda::Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor> how_;
  cudnnConvolutionFwdAlgo_t forward_{};
  cudnnConvolutionBwdFilterAlgo_t filter_{};
  cudnnConvolutionBwdDataAlgo_t data_{};
  std::size_t forward_bytes_ = 0, filter_bytes_ = 0, data_bytes_ = 0;
  Places at_{};
  Ports p_{};
};

/// y = convolution of x with a square kernel, plus bias, and max(y, 0) at once where a ReLU follows in place.
///
/// x, y      (B, H, W, C), (B, H', W', Filters)
/// kernel    (K, K, C, Filters); bias (Filters), or none
/// cost      with a kernel of one pixel, stride 1 and no pads: the products of a Dense of (B · H · W, C), with nothing
///           transposed. Else as Windows
/// source    tf.keras.layers.Conv2D
class Kernels<Cuda>::Conv2D {
 public:
  Conv2D(runtime& rt, layout const& in, int rows, Window const& w, int filters, bool /*wants_dx*/ = true,
         bool /*biased*/ = true)
      : out_{rows, w.out_height(), w.out_width(), filters, in.of}, by_{choose(rt, in, rows, w, filters)} {}

  layout out() const { return out_; }
  std::size_t workspace() const {
    return std::visit([](auto& by) { return by.workspace(); }, by_);
  }

  void bind(Ports const& p) {
    std::visit([&](auto& by) { by.bind(p); }, by_);
  }
  void read_from(float const* x) {
    std::visit([&](auto& by) { by.read_from(x); }, by_);
  }
  void forward(Pass const& pass) const {
    std::visit([&](auto& by) { by.forward(pass); }, by_);
  }
  void backward(Pass const& pass) const {
    std::visit([&](auto& by) { by.backward(pass); }, by_);
  }

 private:
  using By = std::variant<Dense, Windows>;

  static By choose(runtime& rt, layout const& in, int rows, Window const& w, int filters) {
    auto const pads = w.pad_before + w.pad_after + w.pad_left + w.pad_right;
    if (w.kernel == 1 && w.stride == 1 && pads == 0)
      return Dense{rt, in, static_cast<int>(in.pixels()), w.channels, filters};
    return Windows{rt, in, rows, w, filters};
  }

  layout out_;
  By by_;
};

}  // namespace chorale

#endif
