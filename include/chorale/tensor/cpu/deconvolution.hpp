// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace chorale {

/// y = the transpose of a convolution, applied to x, plus bias: each pixel of x adds a kernel to y.
///
/// x, y      (B, H, W, C), (B, H', W', Filters), in any layout
/// kernel    (K, K, Filters, C); bias (Filters), or none
/// source    tf.keras.layers.Conv2DTranspose; oneDNN deconvolution, direct
class Kernels<Cpu>::Conv2DTranspose {
 public:
  /// w         the convolution that this one transposes: from y, with as many channels as there are filters, to x
  /// channels  of x
  Conv2DTranspose(runtime& rt, layout const& in, int rows, Window const& w, int channels, bool biased)
      : rt_{&rt}, in_{in}, plain_kernel_{plain_kernel(w, channels)},
        bias_{biased ? layout{{w.channels}, onednn::f32, onednn::tag::x} : layout{}} {
    describe(rows, w, channels);
  }

  /// Number of passes that run on reference loops, because oneDNN has nothing else for this CPU and these shapes.
  int references() const {
    auto const reference = [](auto const& pass) { return std::string_view{pass.impl_info_str()}.starts_with("ref"); };
    return reference(forward_) + reference(weights_) + reference(data_);
  }

  layout out() const { return forward_.dst_desc(); }
  std::size_t workspace() const {
    auto cut = onednn::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut       = onednn::Cutter{p.workspace};
    auto const at  = place(cut);
    auto const src = forward_.src_desc(), dst = forward_.dst_desc();
    auto const d_dst = weights_.diff_dst_desc(), d_src = data_.diff_src_desc();
    auto* const x  = src == in_ ? p.x : at.x;
    auto* const dy = d_dst == dst ? p.dy : at.dy;

    if (src != in_) x_to_own_ = onednn::reorder(*rt_, in_, p.x, src, at.x);
    if (d_dst != dst) dy_to_own_ = onednn::reorder(*rt_, dst, p.dy, d_dst, at.dy);
    kernel_to_own_ = onednn::reorder(*rt_, plain_kernel_, p.kernel, forward_.weights_desc(), at.kernel);
    run_forward_   = {*rt_,
                      dnnl::deconvolution_forward{forward_},
                      {{DNNL_ARG_SRC, src, x},
                       {DNNL_ARG_WEIGHTS, forward_.weights_desc(), at.kernel},
                       {DNNL_ARG_BIAS, bias_, p.bias},
                       {DNNL_ARG_DST, dst, p.y},
                       {DNNL_ARG_SCRATCHPAD, forward_.scratchpad_desc(), at.scratch}}};
    run_weights_   = {*rt_,
                      dnnl::deconvolution_backward_weights{weights_},
                      {{DNNL_ARG_SRC, src, x},
                       {DNNL_ARG_DIFF_DST, d_dst, dy},
                       {DNNL_ARG_DIFF_WEIGHTS, weights_.diff_weights_desc(), at.d_kernel},
                       {DNNL_ARG_DIFF_BIAS, bias_, p.d_bias},
                       {DNNL_ARG_SCRATCHPAD, weights_.scratchpad_desc(), at.scratch}}};
    own_to_kernel_ = onednn::reorder(*rt_, weights_.diff_weights_desc(), at.d_kernel, plain_kernel_, p.d_kernel);
    if (p.dx == nullptr) return;
    kernel_to_data_ = onednn::reorder(*rt_, plain_kernel_, p.kernel, data_.weights_desc(), at.data_kernel);
    run_data_       = {*rt_,
                       dnnl::deconvolution_backward_data{data_},
                       {{DNNL_ARG_DIFF_DST, d_dst, dy},
                        {DNNL_ARG_WEIGHTS, data_.weights_desc(), at.data_kernel},
                        {DNNL_ARG_DIFF_SRC, d_src, d_src == in_ ? p.dx : at.x},  // x is not needed any more
                        {DNNL_ARG_SCRATCHPAD, data_.scratchpad_desc(), at.scratch}}};
    if (d_src != in_) own_to_dx_ = onednn::reorder(*rt_, d_src, at.x, in_, p.dx);
  }

  void read_from(float const* x) {
    if (x_to_own_) return x_to_own_.point(DNNL_ARG_FROM, x);
    run_forward_.point(DNNL_ARG_SRC, x);
    run_weights_.point(DNNL_ARG_SRC, x);
  }
  void forward(Pass const&) const {
    if (x_to_own_) x_to_own_();
    kernel_to_own_();
    run_forward_();
  }
  void backward(Pass const& pass) const {
    if (dy_to_own_) dy_to_own_();
    if (pass.by_variables) {
      run_weights_();
      own_to_kernel_();
    }
    if (!run_data_ || !pass.by_input) return;
    kernel_to_data_();
    run_data_();
    if (own_to_dx_) own_to_dx_();
  }

 private:
  struct Places {
    float *x, *dy, *kernel, *d_kernel, *data_kernel;
    std::byte* scratch;
  };

  /// The kernel as users see it: outputs and inputs in oneDNN's order, in memory rows, columns, outputs, inputs.
  static layout plain_kernel(Window const& w, int channels) {
    auto const row = w.kernel_width() * w.channels * channels, column = w.channels * channels;
    return {onednn::dims{w.channels, channels, w.kernel, w.kernel_width()}, onednn::f32,
            onednn::dims{channels, 1, row, column}};
  }
  void describe(int rows, Window const& w, int channels) {
    auto const attributes = onednn::user_scratchpad();
    auto const any        = [](onednn::dims const& dims) { return layout{dims, onednn::f32, onednn::tag::any}; };
    auto const src        = any({rows, channels, w.out_height(), w.out_width()});
    auto const dst        = any({rows, w.channels, w.height, w.width});
    auto const kernel     = any(onednn::dims_of(plain_kernel_));
    auto const strides    = onednn::dims{w.stride, w.stride};
    auto const before     = onednn::dims{w.pad_before, w.pad_left};
    auto const after      = onednn::dims{w.pad_after, w.pad_right};
    constexpr auto direct = dnnl::algorithm::deconvolution_direct;

    forward_ = onednn::describe<dnnl::deconvolution_forward>(rt_->engine, attributes, dnnl::prop_kind::forward_training,
                                                             direct, src, kernel, bias_, dst, strides, before, after);
    auto const backward = [&](layout const& d_dst) {
      weights_ = onednn::describe_backward<dnnl::deconvolution_backward_weights>(
          rt_->engine, attributes, forward_, direct, forward_.src_desc(), kernel, bias_, d_dst, strides, before, after);
      data_ = onednn::describe_backward<dnnl::deconvolution_backward_data>(
          rt_->engine, attributes, forward_, direct, forward_.src_desc(), kernel, weights_.diff_dst_desc(), strides,
          before, after);
    };
    backward(forward_.dst_desc());
    if (auto const slow = references(); slow > 0) {  // of one filter: for that layout there are loops
      backward(dst);
      if (references() >= slow) backward(forward_.dst_desc());
    }
  }

  Places place(onednn::Cutter& cut) const {
    auto const scratch = std::max({forward_.scratchpad_desc().get_size(), weights_.scratchpad_desc().get_size(),
                                   data_.scratchpad_desc().get_size()});
    auto const& wider =
        data_.diff_src_desc().get_size() > forward_.src_desc().get_size() ? data_.diff_src_desc() : forward_.src_desc();
    auto const own = forward_.src_desc() != in_ || data_.diff_src_desc() != in_;
    return {own ? cut.take(wider) : nullptr,
            weights_.diff_dst_desc() == forward_.dst_desc() ? nullptr : cut.take(weights_.diff_dst_desc()),
            cut.take(forward_.weights_desc()),
            cut.take(weights_.diff_weights_desc()),
            cut.take(data_.weights_desc()),
            cut.take_bytes(scratch)};
  }

  runtime* rt_;
  layout in_, plain_kernel_, bias_;
  dnnl::deconvolution_forward::primitive_desc forward_;
  dnnl::deconvolution_backward_weights::primitive_desc weights_;
  dnnl::deconvolution_backward_data::primitive_desc data_;
  onednn::Call x_to_own_, kernel_to_own_, run_forward_, dy_to_own_, run_weights_, own_to_kernel_, kernel_to_data_,
      run_data_, own_to_dx_;
};

}  // namespace chorale
