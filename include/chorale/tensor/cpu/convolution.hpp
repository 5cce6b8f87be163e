// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/cpu/max_pool.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace chorale {

/// y = convolution of x, plus bias.
///
/// x, y      (B, H, W, C), (B, H', W', Filters), in any layout
/// kernel    (K, K', C / groups, Filters): each group makes its part of the filters; bias (Filters), or none
/// cost      where factors are rounded, one pass more over x, and over dy
/// source    tf.keras.layers.Conv2D; oneDNN convolution, direct
class Kernels<Cpu>::Conv2D {
 public:
  enum class Images { any, channels_last };  // layouts of x and y that oneDNN may choose

  /// wants_dx    true if backward computes the gradient by x
  /// biased      true if there is a bias
  Conv2D(runtime& rt, layout const& in, int rows, Window const& w, int filters, bool wants_dx = true,
         bool biased = true, Images images = Images::any)
      : rt_{&rt}, in_{in},
        plain_kernel_{kernel_dims(w, filters), onednn::f32, w.groups > 1 ? onednn::tag::hwigo : onednn::tag::hwio},
        bias_{biased ? layout{{filters}, onednn::f32, onednn::tag::x} : layout{}} {
    // The layouts that forward prefers may leave oneDNN only its reference loops for a pass, hundreds of times slower.
    for (factors_ = rt.factors();; factors_ = onednn::f32) {
      if (images == Images::channels_last) {
        describe(rows, w, filters, onednn::tag::nhwc);
        if (references(wants_dx) == 0 || factors_ == onednn::f32) return;
        continue;
      }
      describe(rows, w, filters, onednn::tag::any);
      auto const slow = references(wants_dx);
      if (slow == 0) return;
      describe(rows, w, filters, onednn::tag::nhwc);
      if (references(wants_dx) >= slow) describe(rows, w, filters, onednn::tag::any);
      if (references(wants_dx) == 0 || factors_ == onednn::f32) return;
    }
  }

  /// Number of passes that run on reference loops, because oneDNN has nothing else for this CPU and these shapes.
  int references(bool wants_dx) const {
    auto const reference = [](auto const& pass) { return std::string_view{pass.impl_info_str()}.starts_with("ref"); };
    return reference(forward_) + reference(weights_) + (wants_dx && reference(data_));
  }

  bool rounds() const { return factors_ != onednn::f32; }
  layout in() const { return forward_.src_desc(); }  // the one that oneDNN prefers
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
                      dnnl::convolution_forward{forward_},
                      {{DNNL_ARG_SRC, src, x},
                       {DNNL_ARG_WEIGHTS, forward_.weights_desc(), at.kernel},
                       {DNNL_ARG_BIAS, bias_, p.bias},
                       {DNNL_ARG_DST, dst, p.y},
                       {DNNL_ARG_SCRATCHPAD, forward_.scratchpad_desc(), at.scratch}}};
    run_weights_   = {*rt_,
                      dnnl::convolution_backward_weights{weights_},
                      {{DNNL_ARG_SRC, src, x},
                       {DNNL_ARG_DIFF_DST, d_dst, dy},
                       {DNNL_ARG_DIFF_WEIGHTS, weights_.diff_weights_desc(), at.d_kernel},
                       {DNNL_ARG_DIFF_BIAS, bias_, p.d_bias},
                       {DNNL_ARG_SCRATCHPAD, weights_.scratchpad_desc(), at.scratch}}};
    own_to_kernel_ = onednn::reorder(*rt_, weights_.diff_weights_desc(), at.d_kernel, plain_kernel_, p.d_kernel);
    if (p.dx == nullptr) return;
    if (data_.weights_desc() != forward_.weights_desc())
      kernel_to_data_ = onednn::reorder(*rt_, plain_kernel_, p.kernel, data_.weights_desc(), at.data_kernel);
    run_data_ = {*rt_,
                 dnnl::convolution_backward_data{data_},
                 {{DNNL_ARG_DIFF_DST, d_dst, dy},
                  {DNNL_ARG_WEIGHTS, data_.weights_desc(), kernel_to_data_ ? at.data_kernel : at.kernel},
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
    if (kernel_to_data_) kernel_to_data_();
    run_data_();
    if (own_to_dx_) own_to_dx_();
  }

 private:
  struct Places {
    float *x, *dy, *kernel, *d_kernel, *data_kernel;
    std::byte* scratch;
  };
  /// The dimensions of the kernel in oneDNN's order: (groups,) outputs and inputs of a group, rows, columns.
  static onednn::dims kernel_dims(Window const& w, int filters) {
    auto dims = onednn::dims{filters / w.groups, w.channels / w.groups, w.kernel, w.kernel_width()};
    if (w.groups > 1) dims.insert(dims.begin(), w.groups);
    return dims;
  }
  /// Describes the three passes to oneDNN, with x and y in the layout `images`.
  void describe(int rows, Window const& w, int filters, onednn::tag images) {
    auto const attributes = onednn::user_scratchpad();
    auto const image      = onednn::dims{rows, w.channels, w.height, w.width};
    auto const result     = onednn::dims{rows, filters, w.out_height(), w.out_width()};
    auto const kernel     = kernel_dims(w, filters);
    auto const src        = layout{image, factors_, images};
    auto const ker        = layout{kernel, factors_, onednn::tag::any};
    auto const strides    = onednn::dims{w.stride, w.stride};
    auto const dilations  = onednn::dims{w.dilation - 1, w.dilation - 1};  // pixels that are left out
    auto const before     = onednn::dims{w.pad_before, w.pad_left};
    auto const after      = onednn::dims{w.pad_after, w.pad_right};
    constexpr auto direct = dnnl::algorithm::convolution_direct;

    forward_ = onednn::describe<dnnl::convolution_forward>(rt_->engine, attributes, dnnl::prop_kind::forward_training,
                                                           direct, src, ker, bias_, layout{result, onednn::f32, images},
                                                           strides, dilations, before, after);
    auto const d_dst = rounds() ? layout{result, factors_, images} : forward_.dst_desc();
    auto const d_src = rounds() ? layout{image, onednn::f32, images} : forward_.src_desc();
    weights_         = onednn::describe_backward<dnnl::convolution_backward_weights>(
        rt_->engine, attributes, forward_, direct, forward_.src_desc(), layout{kernel, onednn::f32, onednn::tag::any},
        bias_, d_dst, strides, dilations, before, after);
    data_ = onednn::describe_backward<dnnl::convolution_backward_data>(rt_->engine, attributes, forward_, direct, d_src,
                                                                       ker, weights_.diff_dst_desc(), strides,
                                                                       dilations, before, after);
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
  dnnl::memory::data_type factors_;
  dnnl::convolution_forward::primitive_desc forward_;
  dnnl::convolution_backward_weights::primitive_desc weights_;
  dnnl::convolution_backward_data::primitive_desc data_;
  onednn::Call x_to_own_, kernel_to_own_, run_forward_, dy_to_own_, run_weights_, own_to_kernel_, kernel_to_data_,
      run_data_, own_to_dx_;
};

/// y = the largest, or the mean, of each window of x. Padding never counts.
///
/// x, y      (B, H, W, C), (B, H', W', C), both in the layout of x
/// source    tf.keras.layers.MaxPool2D, AveragePooling2D; oneDNN pooling, and cpu::MaxPool where oneDNN's is slow
class Kernels<Cpu>::Pool2D {
 public:
  Pool2D(runtime& rt, layout const& in, int rows, Window const& w, Pool pool) : rt_{&rt}, in_{in} {
    auto const algorithm =
        pool == Pool::max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
    auto const attributes = onednn::user_scratchpad();
    auto const dst        = layout{{rows, w.channels, w.out_height(), w.out_width()}, onednn::f32, onednn::tag::any};
    auto const windows    = onednn::Windows{.strides = {w.stride, w.stride},
                                            .kernel  = {w.kernel, w.kernel},
                                            .before  = {w.pad_before, w.pad_left},
                                            .after   = {w.pad_after, w.pad_right}};
    forward_              = onednn::describe_pool(rt.engine, attributes, algorithm, in, dst, windows);
    backward_ =
        onednn::describe_pool_backward(rt.engine, attributes, forward_, algorithm, in, forward_.dst_desc(), windows);
    if (pool == Pool::max && std::string_view{forward_.impl_info_str()}.find("avx512") == std::string_view::npos)
      loops_ = cpu::MaxPool::of(in, forward_.dst_desc(), w);
  }

  layout out() const { return forward_.dst_desc(); }
  std::size_t workspace() const {
    auto cut = onednn::Cutter{};
    place(cut);
    return cut.used();
  }

  void bind(Ports const& p) {
    auto cut      = onednn::Cutter{p.workspace};
    auto const at = place(cut);
    p_            = p;
    winners_      = reinterpret_cast<std::uint8_t*>(at.winners);
    if (loops_) return;
    auto const dst = forward_.dst_desc();
    run_forward_   = {*rt_,
                      dnnl::pooling_forward{forward_},
                      {{DNNL_ARG_SRC, in_, p.x},
                       {DNNL_ARG_DST, dst, p.y},
                       {DNNL_ARG_WORKSPACE, forward_.workspace_desc(), at.winners},
                       {DNNL_ARG_SCRATCHPAD, forward_.scratchpad_desc(), at.scratch}}};
    if (p.dx == nullptr) return;
    run_backward_ = {*rt_,
                     dnnl::pooling_backward{backward_},
                     {{DNNL_ARG_DIFF_DST, dst, p.dy},
                      {DNNL_ARG_DIFF_SRC, in_, p.dx},
                      {DNNL_ARG_WORKSPACE, forward_.workspace_desc(), at.winners},
                      {DNNL_ARG_SCRATCHPAD, backward_.scratchpad_desc(), at.scratch}}};
  }

  void read_from(float const* x) {
    p_.x = const_cast<float*>(x);  // only read
    run_forward_.point(DNNL_ARG_SRC, x);
  }
  void forward(Pass const&) const {
    if (loops_) loops_->forward(p_.x, p_.y, winners_);
    else run_forward_();
  }
  void backward(Pass const&) const {
    if (loops_ && p_.dx != nullptr) loops_->backward(p_.dy, winners_, p_.dx);
    else if (run_backward_) run_backward_();
  }

 private:
  struct Places {
    std::byte *winners, *scratch;  // which pixel of each window was the largest
  };
  Places place(onednn::Cutter& cut) const {
    if (loops_) return {cut.take_bytes(loops_->winners()), nullptr};
    return {cut.take_bytes(forward_.workspace_desc().get_size()),
            cut.take_bytes(std::max(forward_.scratchpad_desc().get_size(), backward_.scratchpad_desc().get_size()))};
  }

  runtime* rt_;
  layout in_;
  Ports p_{};
  std::uint8_t* winners_ = nullptr;
  std::optional<cpu::MaxPool> loops_;
  dnnl::pooling_forward::primitive_desc forward_;
  dnnl::pooling_backward::primitive_desc backward_;
  onednn::Call run_forward_, run_backward_;
};

}  // namespace chorale
