// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/kernels_cpu.hpp>
#include <chorale/tensor/onednn.hpp>
#include <chorale/tensor/ops.hpp>

#include <algorithm>
#include <cstddef>

namespace chorale {

/// y = x W + b
///
/// x, y      (B, In), (B, Units); kernel (In, Units), bias (Units), all plain
/// source    tf.keras.layers.Dense; oneDNN inner product
class Kernels<Cpu>::Dense {
 public:
  Dense(runtime& rt, layout const& in, int rows, int inputs, int units)
      : rt_{&rt}, in_{in}, out_{matrix(rows, units)},
        kernel_{{units, inputs}, onednn::f32, onednn::tag::ba}, bias_{{units}, onednn::f32, onednn::tag::x} {
    auto const attributes = onednn::user_scratchpad();
    forward_ = {{dnnl::prop_kind::forward_training, in_, kernel_, bias_, out_}, attributes, rt.engine};
    weights_ = {{in_, kernel_, bias_, out_}, attributes, rt.engine, forward_};
    data_    = {{in_, kernel_, out_}, attributes, rt.engine, forward_};
  }

  layout out() const { return out_; }
  std::size_t workspace() const {
    return std::max({forward_.scratchpad_desc().get_size(), weights_.scratchpad_desc().get_size(),
                     data_.scratchpad_desc().get_size()});
  }

  void bind(Ports const& p) {
    run_forward_ = {*rt_, dnnl::inner_product_forward{forward_},
                    {{DNNL_ARG_SRC, in_, p.x}, {DNNL_ARG_WEIGHTS, kernel_, p.kernel}, {DNNL_ARG_BIAS, bias_, p.bias},
                     {DNNL_ARG_DST, out_, p.y}, {DNNL_ARG_SCRATCHPAD, forward_.scratchpad_desc(), p.workspace}}};
    run_weights_ = {*rt_, dnnl::inner_product_backward_weights{weights_},
                    {{DNNL_ARG_SRC, in_, p.x}, {DNNL_ARG_DIFF_DST, out_, p.dy},
                     {DNNL_ARG_DIFF_WEIGHTS, kernel_, p.d_kernel}, {DNNL_ARG_DIFF_BIAS, bias_, p.d_bias},
                     {DNNL_ARG_SCRATCHPAD, weights_.scratchpad_desc(), p.workspace}}};
    if (p.dx == nullptr) return;
    run_data_ = {*rt_, dnnl::inner_product_backward_data{data_},
                 {{DNNL_ARG_DIFF_DST, out_, p.dy}, {DNNL_ARG_WEIGHTS, kernel_, p.kernel},
                  {DNNL_ARG_DIFF_SRC, in_, p.dx}, {DNNL_ARG_SCRATCHPAD, data_.scratchpad_desc(), p.workspace}}};
  }

  void read_from(float const* x) {
    run_forward_.point(DNNL_ARG_SRC, x);
    run_weights_.point(DNNL_ARG_SRC, x);
  }
  void forward(Pass const&) const { run_forward_(); }
  void backward(Pass const&) const {
    run_weights_();
    if (run_data_) run_data_();
  }

 private:
  runtime* rt_;
  layout in_, out_, kernel_, bias_;
  dnnl::inner_product_forward::primitive_desc forward_;
  dnnl::inner_product_backward_weights::primitive_desc weights_;
  dnnl::inner_product_backward_data::primitive_desc data_;
  onednn::Call run_forward_, run_weights_, run_data_;
};

/// y = f(x), element by element, in any layout; x and y may be one buffer where f' follows from y.
///
/// source    tf.keras.activations; oneDNN eltwise
class Kernels<Cpu>::Activate {
 public:
  Activate(runtime& rt, layout const& in, Activation f, float alpha)
      : rt_{&rt}, in_{in}, from_y_{differentiates_from_y(f)} {
    auto const attributes = onednn::user_scratchpad();
    forward_  = {{dnnl::prop_kind::forward_training, onto(f), in, alpha, 0.0F}, attributes, rt.engine};
    backward_ = {{onto(f), in, in, alpha, 0.0F}, attributes, rt.engine, forward_};
  }

  layout out() const { return in_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) {
    run_forward_ = {*rt_, dnnl::eltwise_forward{forward_}, {{DNNL_ARG_SRC, in_, p.x}, {DNNL_ARG_DST, in_, p.y}}};
    if (p.dx == nullptr) return;
    run_backward_ = {*rt_, dnnl::eltwise_backward{backward_},
                     {{from_y_ ? DNNL_ARG_DST : DNNL_ARG_SRC, in_, from_y_ ? p.y : p.x},
                      {DNNL_ARG_DIFF_DST, in_, p.dy}, {DNNL_ARG_DIFF_SRC, in_, p.dx}}};
  }

  void read_from(float const* x) {
    run_forward_.point(DNNL_ARG_SRC, x);
    if (!from_y_) run_backward_.point(DNNL_ARG_SRC, x);
  }
  void forward(Pass const&) const { run_forward_(); }
  void backward(Pass const&) const {
    if (run_backward_) run_backward_();
  }

 private:
  static dnnl::algorithm onto(Activation f) {
    using a = dnnl::algorithm;
    switch (f) {
      case Activation::relu:
      case Activation::leaky_relu: return a::eltwise_relu_use_dst_for_bwd;
      case Activation::elu:        return a::eltwise_elu_use_dst_for_bwd;
      case Activation::tanh:       return a::eltwise_tanh_use_dst_for_bwd;
      case Activation::sigmoid:    return a::eltwise_logistic_use_dst_for_bwd;
      case Activation::softplus:   return a::eltwise_soft_relu;
      case Activation::gelu:       return a::eltwise_gelu_erf;
      case Activation::silu:       return a::eltwise_swish;
    }
    return a::undef;
  }

  runtime* rt_;
  layout in_;
  bool from_y_;
  dnnl::eltwise_forward::primitive_desc forward_;
  dnnl::eltwise_backward::primitive_desc backward_;
  onednn::Call run_forward_, run_backward_;
};

/// y = exp(x) / sum of exp(x), over each row.
///
/// x, y      (B, N)
/// source    tf.keras.activations.softmax; oneDNN softmax
class Kernels<Cpu>::Softmax {
 public:
  Softmax(runtime& rt, layout const& in) : rt_{&rt}, in_{in} {
    auto const attributes = onednn::user_scratchpad();
    forward_  = {{dnnl::prop_kind::forward_training, in, 1}, attributes, rt.engine};
    backward_ = {{in, in, 1}, attributes, rt.engine, forward_};
  }

  layout out() const { return in_; }
  std::size_t workspace() const {
    return std::max(forward_.scratchpad_desc().get_size(), backward_.scratchpad_desc().get_size());
  }

  void bind(Ports const& p) {
    run_forward_ = {*rt_, dnnl::softmax_forward{forward_},
                    {{DNNL_ARG_SRC, in_, p.x}, {DNNL_ARG_DST, in_, p.y},
                     {DNNL_ARG_SCRATCHPAD, forward_.scratchpad_desc(), p.workspace}}};
    if (p.dx == nullptr) return;
    run_backward_ = {*rt_, dnnl::softmax_backward{backward_},
                     {{DNNL_ARG_DST, in_, p.y}, {DNNL_ARG_DIFF_DST, in_, p.dy}, {DNNL_ARG_DIFF_SRC, in_, p.dx},
                      {DNNL_ARG_SCRATCHPAD, backward_.scratchpad_desc(), p.workspace}}};
  }

  void read_from(float const* x) { run_forward_.point(DNNL_ARG_SRC, x); }
  void forward(Pass const&) const { run_forward_(); }
  void backward(Pass const&) const {
    if (run_backward_) run_backward_();
  }

 private:
  runtime* rt_;
  layout in_;
  dnnl::softmax_forward::primitive_desc forward_;
  dnnl::softmax_backward::primitive_desc backward_;
  onednn::Call run_forward_, run_backward_;
};

/// y = x as plain rows: an image in any layout becomes (B, H · W · C), in that order.
class Kernels<Cpu>::ToRows {
 public:
  ToRows(runtime& rt, layout const& in, layout const& plain, int rows, int columns)
      : rt_{&rt}, in_{in}, plain_{plain}, out_{matrix(rows, columns)} {}

  layout out() const { return out_; }
  std::size_t workspace() const { return 0; }

  void bind(Ports const& p) {
    there_ = onednn::reorder(*rt_, in_, p.x, plain_, p.y);
    if (p.dx != nullptr) back_ = onednn::reorder(*rt_, plain_, p.dy, in_, p.dx);
  }

  void read_from(float const* x) { there_.point(DNNL_ARG_FROM, x); }
  void forward(Pass const&) const { there_(); }
  void backward(Pass const&) const {
    if (back_) back_();
  }

 private:
  runtime* rt_;
  layout in_, plain_, out_;
  onednn::Call there_, back_;
};

}  // namespace chorale
