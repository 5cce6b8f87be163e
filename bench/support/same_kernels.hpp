// SPDX-License-Identifier: Apache-2.0
//
// The CNN's training loop as one would write it by hand over the library's own kernels: no network type, no plan, no
// strategy, no trainer. What Trainer adds to this is what abstraction costs.
#pragma once

#include <chorale/chorale.hpp>

#include <cmath>
#include <cstddef>

namespace bench {

using namespace chorale;

class SameKernels {
  using K = Kernels<Cpu>;

 public:
  static constexpr std::size_t size = 347'152;  // floats; the offsets stand below

  explicit SameKernels(int rows, Seed seed)
      : rows_{static_cast<std::size_t>(rows)},
        conv_{rt_, K::image(rows, 28, 28, 1), rows, Window{28, 28, 1, 3, 1}, 32, Window{26, 26, 32, 2, 2}, Pool::max},
        relu_1_{rt_, conv_.out(), Activation::relu, 0.0F},
        flatten_{rt_, conv_.out(), K::image(rows, 13, 13, 32), rows, 5408},
        dense_1_{rt_, K::matrix(rows, 5408), rows, 5408, 64}, relu_2_{rt_, K::matrix(rows, 64), Activation::relu, 0.0F},
        dense_2_{rt_, K::matrix(rows, 64), rows, 64, 10} {
    auto const row = rows_ * 5408 * 4;
    for (auto* block : {&variables_, &gradients_, &m_, &v_}) *block = Cpu::block{size * sizeof(float)};
    for (auto* block : {&y_conv_, &y_flat_, &d_a_, &d_b_}) *block = Cpu::block{row};
    y_1_ = Cpu::block{rows_ * 64 * 4}, y_2_ = Cpu::block{rows_ * 10 * 4};
    w_conv_ = Cpu::block{conv_.workspace()};
    w_1_ = Cpu::block{dense_1_.workspace()}, w_2_ = Cpu::block{dense_2_.workspace()};

    // kernel, bias of dense_1 (64 x 10), of dense (5408 x 64), of conv2d (3 x 3 x 1 x 32); 16-float aligned
    auto const at = [](Cpu::block const& b, std::size_t offset = 0) {
      return reinterpret_cast<float*>(b.data()) + offset;
    };
    auto const w = [&](std::size_t o) { return at(variables_, o); };
    auto const g = [&](std::size_t o) { return at(gradients_, o); };
    conv_.bind({.y         = at(y_conv_),
                .dy        = at(d_b_),
                .kernel    = w(346'832),
                .bias      = w(347'120),
                .d_kernel  = g(346'832),
                .d_bias    = g(347'120),
                .workspace = w_conv_.data()});
    relu_1_.bind({at(y_conv_), at(y_conv_), at(d_b_), at(d_b_)});
    flatten_.bind({at(y_conv_), at(y_flat_), at(d_b_), at(d_a_)});
    dense_1_.bind({.x         = at(y_flat_),
                   .y         = at(y_1_),
                   .dx        = at(d_a_),
                   .dy        = at(d_b_),
                   .kernel    = w(656),
                   .bias      = w(346'768),
                   .d_kernel  = g(656),
                   .d_bias    = g(346'768),
                   .workspace = w_1_.data()});
    relu_2_.bind({at(y_1_), at(y_1_), at(d_b_), at(d_b_)});
    dense_2_.bind({.x         = at(y_1_),
                   .y         = at(y_2_),
                   .dx        = at(d_b_),
                   .dy        = at(d_a_),
                   .kernel    = w(0),
                   .bias      = w(640),
                   .d_kernel  = g(0),
                   .d_bias    = g(640),
                   .workspace = w_2_.data()});

    auto const fill = [&](std::size_t offset, VariableSpec const& spec, std::uint64_t stream) {
      initialize(Span<float>{w(offset), spec.size()}, spec, Random{seed, stream});
    };
    fill(346'832, {"kernel", {3, 3, 1, 32}, 4, Init::glorot_uniform, 9, 288}, 0);
    fill(656, {"kernel", {5408, 64}, 2, Init::glorot_uniform, 5408, 64}, 2);
    fill(0, {"kernel", {64, 10}, 2, Init::glorot_uniform, 64, 10}, 4);
  }

  /// One step of Adam on a batch of the number of rows that it was made for; returns the mean loss.
  float step(float const* x, int const* labels) {
    auto const pass = Pass{.training = true};
    conv_.read_from(x);
    conv_.forward(pass), relu_1_.forward(pass), flatten_.forward(pass);
    dense_1_.forward(pass), relu_2_.forward(pass), dense_2_.forward(pass);

    auto* const logits = reinterpret_cast<float*>(y_2_.data());
    auto const loss    = K::sparse_cross_entropy(rows_, 10, logits, labels, reinterpret_cast<float*>(d_a_.data()));
    correct += metric::Accuracy{}.sum(rows_, 10, logits, labels);

    dense_2_.backward(pass), relu_2_.backward(pass), dense_1_.backward(pass);
    flatten_.backward(pass), relu_1_.backward(pass), conv_.backward(pass);

    auto const g = Span<float const>{reinterpret_cast<float*>(gradients_.data()), size};
    if (!K::finite(g)) throw NumericFault{"a gradient is not finite."};

    ++t_;
    auto const floats = [](Cpu::block const& b) { return reinterpret_cast<float*>(b.data()); };
    K::adam(
        {floats(variables_), size}, floats(gradients_), floats(m_), floats(v_),
        {1e-3F, 1.0F / static_cast<float>(rows_), 0.9F, 0.999F, 1e-7F, 0.0F,
         static_cast<float>(1.0 / (1.0 - std::pow(0.9, t_))), static_cast<float>(1.0 / (1.0 - std::pow(0.999, t_)))});
    return loss / static_cast<float>(rows_);
  }

  double correct = 0;

 private:
  std::size_t rows_;
  K::runtime rt_;
  K::ConvPool conv_;
  K::Activate relu_1_;
  K::ToRows flatten_;
  K::Dense dense_1_;
  K::Activate relu_2_;
  K::Dense dense_2_;
  Cpu::block variables_, gradients_, m_, v_, y_conv_, y_flat_, y_1_, y_2_, d_a_, d_b_, w_conv_, w_1_, w_2_;
  int t_ = 0;
};

}  // namespace bench
