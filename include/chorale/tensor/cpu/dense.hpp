// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/cpu/kernels.hpp>
#include <chorale/tensor/cpu/matmul.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>

namespace chorale {

/// y = x W + b
///
/// x, y      (B, In), (B, Units); kernel (In, Units), bias (Units), all plain
/// cost      where factors are rounded, a pass over x, dy, the kernel and its gradient
/// source    tf.keras.layers.Dense; oneDNN inner product
class Kernels<Cpu>::Dense {
 public:
  static constexpr bool apart = true;  // gradients by variables may come later

  Dense(runtime& rt, layout const& in, int rows, int inputs, int units)
      : rt_{&rt}, in_{in}, out_{matrix(rows, units)}, kernel_{{units, inputs}, onednn::f32, onednn::tag::ba},
        bias_{{units}, onednn::f32, onednn::tag::x}, rows_{static_cast<std::size_t>(rows)},
        inputs_{static_cast<std::size_t>(inputs)}, units_{static_cast<std::size_t>(units)} {
    auto const attributes = onednn::user_scratchpad();
    auto const factors    = rt.factors();
    auto const plain      = factors == onednn::f32;  // all operands in place
    auto const x          = plain ? in_ : layout{onednn::dims_of(in_), factors, onednn::tag::ab};
    auto const dy         = plain ? out_ : layout{onednn::dims_of(out_), factors, onednn::tag::ab};
    auto const kernel     = plain ? kernel_ : layout{onednn::dims_of(kernel_), factors, onednn::tag::any};
    auto const d_kernel   = plain ? kernel_ : layout{onednn::dims_of(kernel_), onednn::f32, onednn::tag::any};
    using onednn::describe_backward;
    forward_ = onednn::describe<dnnl::inner_product_forward>(rt.engine, attributes, dnnl::prop_kind::forward_training,
                                                             x, kernel, bias_, out_);
    weights_ = describe_backward<dnnl::inner_product_backward_weights>(rt.engine, attributes, forward_, x, d_kernel,
                                                                       bias_, dy);
    data_    = describe_backward<dnnl::inner_product_backward_data>(rt.engine, attributes, forward_, in_, kernel, dy);
  }

  layout out() const { return out_; }
  std::size_t workspace() const {
    auto cut = onednn::Cutter{};
    place(cut);
    return cut.used();
  }
  /// True if backward reads copies that forward has made.
  bool reads_workspace() const { return in_ != forward_.src_desc() || kernel_ != forward_.weights_desc(); }

  void bind(Ports const& p) {
    p_             = p;
    auto cut       = onednn::Cutter{p.workspace};
    auto const at  = place(cut);
    auto const own = [&](onednn::Call& there, layout const& from, float* data, layout const& to, float* copy) {
      if (copy == nullptr) return data;
      there = onednn::reorder(*rt_, from, data, to, copy);
      return copy;
    };
    auto* const x        = own(x_to_own_, in_, p.x, forward_.src_desc(), at.x);
    auto* const kernel   = own(kernel_to_own_, kernel_, p.kernel, forward_.weights_desc(), at.kernel);
    auto* const dy       = own(dy_to_own_, out_, p.dy, weights_.diff_dst_desc(), at.dy);
    auto* const d_kernel = at.d_kernel == nullptr ? p.d_kernel : at.d_kernel;
    run_forward_         = {*rt_,
                            dnnl::inner_product_forward{forward_},
                            {{DNNL_ARG_SRC, forward_.src_desc(), x},
                             {DNNL_ARG_WEIGHTS, forward_.weights_desc(), kernel},
                             {DNNL_ARG_BIAS, bias_, p.bias},
                             {DNNL_ARG_DST, out_, p.y},
                             {DNNL_ARG_SCRATCHPAD, forward_.scratchpad_desc(), at.scratch}}};
    run_weights_         = {*rt_,
                            dnnl::inner_product_backward_weights{weights_},
                            {{DNNL_ARG_SRC, forward_.src_desc(), x},
                             {DNNL_ARG_DIFF_DST, weights_.diff_dst_desc(), dy},
                             {DNNL_ARG_DIFF_WEIGHTS, weights_.diff_weights_desc(), d_kernel},
                             {DNNL_ARG_DIFF_BIAS, bias_, p.d_bias},
                             {DNNL_ARG_SCRATCHPAD, weights_.scratchpad_desc(), at.scratch}}};
    if (at.d_kernel != nullptr)
      own_to_kernel_ = onednn::reorder(*rt_, weights_.diff_weights_desc(), at.d_kernel, kernel_, p.d_kernel);
    if (p.dx == nullptr) return;
    auto const again = data_.weights_desc() != forward_.weights_desc();
    auto* const back = again ? own(kernel_to_data_, kernel_, p.kernel, data_.weights_desc(), at.data_kernel) : kernel;
    run_data_        = {*rt_,
                        dnnl::inner_product_backward_data{data_},
                        {{DNNL_ARG_DIFF_DST, data_.diff_dst_desc(), dy},
                         {DNNL_ARG_WEIGHTS, data_.weights_desc(), back},
                         {DNNL_ARG_DIFF_SRC, in_, p.dx},
                         {DNNL_ARG_SCRATCHPAD, data_.scratchpad_desc(), at.scratch}}};
  }

  void read_from(float const* x) {
    p_.x = const_cast<float*>(x);  // only read
    if (x_to_own_) return x_to_own_.point(DNNL_ARG_FROM, x);
    run_forward_.point(DNNL_ARG_SRC, x);
    run_weights_.point(DNNL_ARG_SRC, x);
  }
  /// Moves the gradient of the kernel, variable 0, or of the bias, variable 1.
  void move(std::size_t variable, float* gradient) {
    (variable == 0 ? p_.d_kernel : p_.d_bias) = gradient;
    if (variable == 0 && own_to_kernel_) own_to_kernel_.point(DNNL_ARG_TO, gradient);
    else run_weights_.point(variable == 0 ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DIFF_BIAS, gradient);
  }
  void forward(Pass const&) const {
    if (x_to_own_) x_to_own_();
    if (kernel_to_own_) kernel_to_own_();
    run_forward_();
  }
  /// True if add_gradients() may be called: no operand is rounded.
  bool can_add() const { return !x_to_own_ && !dy_to_own_ && !own_to_kernel_; }
  /// Backward by variables, which adds to their gradients: in one pass over the gradient of the kernel.
  void add_gradients() const {
    cpu::matmul(inputs_, units_, rows_, {p_.x, inputs_, true}, {p_.dy, units_},
                {.data = p_.d_kernel, .stride = units_, .beta = 1});
    for (std::size_t r = 0; r < rows_; ++r) sum(units_, p_.d_bias, p_.dy + r * units_, p_.d_bias);
  }
  void backward(Pass const& pass) const {
    if (dy_to_own_) dy_to_own_();
    if (pass.by_variables) {
      run_weights_();
      if (own_to_kernel_) own_to_kernel_();
    }
    if (!run_data_ || !pass.by_input) return;
    if (kernel_to_data_) kernel_to_data_();
    run_data_();
  }

 private:
  /// Copies in the layouts that oneDNN chooses; null where it takes the original.
  struct Places {
    float *x, *kernel, *data_kernel, *dy, *d_kernel;
    std::byte* scratch;
  };
  Places place(onednn::Cutter& cut) const {
    auto const unless = [&](layout const& original, layout const& wanted) {
      return original == wanted ? nullptr : cut.take(wanted);
    };
    return {unless(in_, forward_.src_desc()),
            unless(kernel_, forward_.weights_desc()),
            data_.weights_desc() == forward_.weights_desc() ? nullptr : unless(kernel_, data_.weights_desc()),
            unless(out_, weights_.diff_dst_desc()),
            unless(kernel_, weights_.diff_weights_desc()),
            cut.take_bytes(std::max({forward_.scratchpad_desc().get_size(), weights_.scratchpad_desc().get_size(),
                                     data_.scratchpad_desc().get_size()}))};
  }

  runtime* rt_;
  layout in_, out_, kernel_, bias_;
  std::size_t rows_, inputs_, units_;
  Ports p_{};
  dnnl::inner_product_forward::primitive_desc forward_;
  dnnl::inner_product_backward_weights::primitive_desc weights_;
  dnnl::inner_product_backward_data::primitive_desc data_;
  onednn::Call x_to_own_, kernel_to_own_, run_forward_, dy_to_own_, run_weights_, own_to_kernel_, kernel_to_data_,
      run_data_;
};

/// y = f(x), element by element, in any layout; x and y may be one buffer where f' follows from y.
///
/// cost      none of a ReLU in place that the kernel of x takes
/// source    tf.keras.activations; oneDNN eltwise
class Kernels<Cpu>::Activate {
 public:
  Activate(runtime& rt, layout const& in, Activation f, float alpha)
      : rt_{&rt}, in_{in}, from_y_{differentiates_from_y(f)}, is_relu_{f == Activation::relu} {
    auto const attributes = onednn::user_scratchpad();
    if (f == Activation::softplus) alpha = 1.0F;  // oneDNN 3 divides by it
    forward_  = onednn::describe_eltwise(rt.engine, attributes, onto(f), in, alpha);
    backward_ = onednn::describe_eltwise_backward(rt.engine, attributes, forward_, onto(f), in, alpha);
  }

  layout out() const { return in_; }
  std::size_t workspace() const { return 0; }
  bool reads_workspace() const { return false; }

  void bind(Ports const& p) {
    p_ = p;
    if (is_relu_ && p.x == p.y) question_ = rt_->relus.ask(p.y);
    run_forward_ = {*rt_, dnnl::eltwise_forward{forward_}, {{DNNL_ARG_SRC, in_, p.x}, {DNNL_ARG_DST, in_, p.y}}};
    if (p.dx == nullptr) return;
    run_backward_ = {*rt_,
                     dnnl::eltwise_backward{backward_},
                     {{from_y_ ? DNNL_ARG_DST : DNNL_ARG_SRC, in_, from_y_ ? p.y : p.x},
                      {DNNL_ARG_DIFF_DST, in_, p.dy},
                      {DNNL_ARG_DIFF_SRC, in_, p.dx}}};
  }

  void read_from(float const* x) {
    run_forward_.point(DNNL_ARG_SRC, x);
    if (!from_y_) run_backward_.point(DNNL_ARG_SRC, x);
  }
  void forward(Pass const&) const {
    if (taken() == onednn::Relus::Taken::nothing) run_forward_();
  }
  void backward(Pass const&) const {
    if (taken() != onednn::Relus::Taken::both) {
      if (run_backward_) run_backward_();
    } else if (p_.dx != nullptr && p_.dx != p_.dy) {
      copy(in_, p_.dy, p_.dx);
    }
  }

 private:
  onednn::Relus::Taken taken() const {
    return question_ ? rt_->relus.taken(*question_) : onednn::Relus::Taken::nothing;
  }
  static dnnl::algorithm onto(Activation f) {
    using a = dnnl::algorithm;
    switch (f) {
      case Activation::relu:
      case Activation::leaky_relu: return a::eltwise_relu_use_dst_for_bwd;
      case Activation::elu: return a::eltwise_elu_use_dst_for_bwd;
      case Activation::tanh: return a::eltwise_tanh_use_dst_for_bwd;
      case Activation::sigmoid: return a::eltwise_logistic_use_dst_for_bwd;
      case Activation::softplus: return a::eltwise_soft_relu;
      case Activation::gelu: return a::eltwise_gelu_erf;
      case Activation::silu: return a::eltwise_swish;
      case Activation::gelu_tanh: return a::eltwise_gelu_tanh;
    }
    return a::undef;
  }

  runtime* rt_;
  layout in_;
  bool from_y_, is_relu_;
  Ports p_{};
  std::optional<std::size_t> question_;  // to the kernel that writes x
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
    forward_              = onednn::describe_softmax(rt.engine, attributes, in, 1);
    backward_             = onednn::describe_softmax_backward(rt.engine, attributes, forward_, in, 1);
  }

  layout out() const { return in_; }
  std::size_t workspace() const {
    return std::max(forward_.scratchpad_desc().get_size(), backward_.scratchpad_desc().get_size());
  }
  bool reads_workspace() const { return false; }

  void bind(Ports const& p) {
    run_forward_ = {*rt_,
                    dnnl::softmax_forward{forward_},
                    {{DNNL_ARG_SRC, in_, p.x},
                     {DNNL_ARG_DST, in_, p.y},
                     {DNNL_ARG_SCRATCHPAD, forward_.scratchpad_desc(), p.workspace}}};
    if (p.dx == nullptr) return;
    run_backward_ = {*rt_,
                     dnnl::softmax_backward{backward_},
                     {{DNNL_ARG_DST, in_, p.y},
                      {DNNL_ARG_DIFF_DST, in_, p.dy},
                      {DNNL_ARG_DIFF_SRC, in_, p.dx},
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

/// y = x + other, in the layout of x, and max(y, 0) at once where a ReLU follows in place; x and y may be one buffer.
///
/// x, other  of one shape
/// cost      where the layouts of the two differ, a pass over other, and over its gradient
class Kernels<Cpu>::Sum {
 public:
  Sum(runtime& rt, layout const& in, layout const& other) : rt_{&rt}, in_{in}, other_{other} {}

  layout out() const { return in_; }
  std::size_t workspace() const { return one_gradient() ? 0 : bytes(in_); }
  /// True if the gradient by other is the one by x: then d_other is dy.
  bool one_gradient() const { return in_ == other_; }

  void bind(Ports const& p) {
    p_    = p;
    relu_ = rt_->relus.take(p.y, onednn::Relus::Taken::forward);
    if (one_gradient()) return;
    p_.other = reinterpret_cast<float*>(p.workspace);
    there_   = onednn::reorder(*rt_, other_, p.other, in_, p_.other);
    if (p.d_other != nullptr) back_ = onednn::reorder(*rt_, in_, p.dy, other_, p.d_other);
  }

  /// in        0: x; 1: other
  void read_from(std::size_t in, float const* from) {
    auto* const at = const_cast<float*>(from);  // only read
    if (in == 0) p_.x = at;
    else if (there_) there_.point(DNNL_ARG_FROM, at);
    else p_.other = at;
  }
  void forward(Pass const&) const {
    if (there_) there_();
    auto const n = bytes(in_) / sizeof(float);
    if (relu_) sum_relu(n, p_.x, p_.other, p_.y);
    else sum(n, p_.x, p_.other, p_.y);
  }
  void backward(Pass const&) const {  // dx is dy
    if (back_) back_();
  }

 private:
  runtime* rt_;
  layout in_, other_;
  bool relu_ = false;
  Ports p_{};
  onednn::Call there_, back_;
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
