// SPDX-License-Identifier: Apache-2.0
//
// The CNN written by hand on oneDNN, as someone would who wants no library: blocked layouts chosen once, ReLU fused
// where oneDNN can, primitives and memory made once, Adam as a parallel loop. The limit that bench/training holds
// Trainer against. Of the library it has only the header that hides which version of oneDNN is called.
#pragma once

#include <chorale/tensor/cpu/onednn_api.hpp>

#include <dnnl.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bench {

class HandOneDnn {
  using memory = dnnl::memory;
  using desc   = memory::desc;
  using tag    = memory::format_tag;
  using Args   = std::unordered_map<int, memory>;

 public:
  /// threads    of OpenMP, for the loops; oneDNN takes the runtime's own setting
  HandOneDnn(int rows, int threads) : rows_{rows}, threads_{threads} {
    namespace api   = chorale::onednn;
    auto const relu = [] {
      auto attributes = dnnl::primitive_attr{};
      attributes.set_post_ops(api::followed_by(dnnl::algorithm::eltwise_relu));
      return attributes;
    }();
    auto const any        = [](memory::dims d) { return desc{std::move(d), memory::data_type::f32, tag::any}; };
    constexpr auto train  = dnnl::prop_kind::forward_training;
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    memory::dims const one{1, 1}, zero{0, 0}, two{2, 2};
    int const B = rows;

    // forward:  x (B,28,28,1) -> conv, relu (B,26,26,32) -> pool (B,13,13,32) -> rows (B,5408) -> 64, relu -> 10
    auto const conv_k = make({{32, 1, 3, 3}, memory::data_type::f32, tag::hwio}, 0.15F),
               conv_b = make(plain({32}, tag::x), 0);
    auto const k1 = make(plain({64, 5408}, tag::ba), 0.03F), b1 = make(plain({64}, tag::x), 0);
    auto const k2 = make(plain({10, 64}, tag::ba), 0.28F), b2 = make(plain({10}, tag::x), 0);
    x_ = memory{{{B, 1, 28, 28}, memory::data_type::f32, tag::nchw}, engine_};

    auto const conv =
        api::describe<dnnl::convolution_forward>(engine_, relu, train, direct, any({B, 1, 28, 28}), any({32, 1, 3, 3}),
                                                 conv_b.get_desc(), any({B, 32, 26, 26}), one, zero, zero);
    auto const k_own = memory{conv.weights_desc(), engine_}, y0 = memory{conv.dst_desc(), engine_};
    auto x_own = x_;
    if (conv.src_desc() != x_.get_desc()) x_own = memory{conv.src_desc(), engine_};
    if (conv.src_desc() != x_.get_desc()) add(dnnl::reorder{x_, x_own}, {{DNNL_ARG_FROM, x_}, {DNNL_ARG_TO, x_own}});
    add(dnnl::reorder{conv_k, k_own}, {{DNNL_ARG_FROM, conv_k}, {DNNL_ARG_TO, k_own}});
    add(dnnl::convolution_forward{conv},
        {{DNNL_ARG_SRC, x_own}, {DNNL_ARG_WEIGHTS, k_own}, {DNNL_ARG_BIAS, conv_b}, {DNNL_ARG_DST, y0}});

    constexpr auto max = dnnl::algorithm::pooling_max;
    auto const windows = api::Windows{.strides = two, .kernel = two, .before = zero, .after = zero};
    auto const pool    = api::describe_pool(engine_, none_, max, conv.dst_desc(), any({B, 32, 13, 13}), windows);
    auto const y1 = memory{pool.dst_desc(), engine_}, winners = memory{pool.workspace_desc(), engine_};
    add(dnnl::pooling_forward{pool}, {{DNNL_ARG_SRC, y0}, {DNNL_ARG_DST, y1}, {DNNL_ARG_WORKSPACE, winners}});

    auto const nhwc = desc{{B, 32, 13, 13}, memory::data_type::f32, tag::nhwc};
    auto const flat = memory{nhwc, engine_};
    add(dnnl::reorder{y1, flat}, {{DNNL_ARG_FROM, y1}, {DNNL_ARG_TO, flat}});
    auto const flat_rows = memory{plain({B, 5408}, tag::ab), engine_, flat.get_data_handle()};

    auto const ip1 = api::describe<dnnl::inner_product_forward>(engine_, relu, train, flat_rows.get_desc(),
                                                                k1.get_desc(), b1.get_desc(), plain({B, 64}, tag::ab));
    auto const y2  = memory{ip1.dst_desc(), engine_};
    add(dnnl::inner_product_forward{ip1},
        {{DNNL_ARG_SRC, flat_rows}, {DNNL_ARG_WEIGHTS, k1}, {DNNL_ARG_BIAS, b1}, {DNNL_ARG_DST, y2}});
    auto const ip2 = api::describe<dnnl::inner_product_forward>(engine_, none_, train, y2.get_desc(), k2.get_desc(),
                                                                b2.get_desc(), plain({B, 10}, tag::ab));
    logits_        = memory{ip2.dst_desc(), engine_};
    add(dnnl::inner_product_forward{ip2},
        {{DNNL_ARG_SRC, y2}, {DNNL_ARG_WEIGHTS, k2}, {DNNL_ARG_BIAS, b2}, {DNNL_ARG_DST, logits_}});
    forward_ = calls_.size();

    // backward
    d_logits_      = memory{ip2.dst_desc(), engine_};
    auto const dk2 = gradient(k2), db2 = gradient(b2), dy2 = memory{y2.get_desc(), engine_};
    dense_backward(ip2, y2, k2, d_logits_, dk2, db2, dy2);
    relu_backward(y2, dy2);
    auto const dk1 = gradient(k1), db1 = gradient(b1), dflat = memory{flat_rows.get_desc(), engine_};
    dense_backward(ip1, flat_rows, k1, dy2, dk1, db1, dflat);
    auto const dflat_image = memory{nhwc, engine_, dflat.get_data_handle()}, dy1 = memory{y1.get_desc(), engine_};
    add(dnnl::reorder{dflat_image, dy1}, {{DNNL_ARG_FROM, dflat_image}, {DNNL_ARG_TO, dy1}});
    auto const dy0    = memory{y0.get_desc(), engine_};
    auto const pool_b = api::describe_pool_backward(engine_, none_, pool, max, y0.get_desc(), y1.get_desc(), windows);
    add(dnnl::pooling_backward{pool_b},
        {{DNNL_ARG_DIFF_DST, dy1}, {DNNL_ARG_DIFF_SRC, dy0}, {DNNL_ARG_WORKSPACE, winners}});
    relu_backward(y0, dy0);
    auto const weights_from = [&](memory const& x, memory const& dy) {
      return api::describe_backward<dnnl::convolution_backward_weights>(engine_, none_, conv, direct, x.get_desc(),
                                                                        any({32, 1, 3, 3}), conv_b.get_desc(),
                                                                        dy.get_desc(), one, zero, zero);
    };
    // On AVX2, oneDNN has only reference loops for one channel and the layout of y0; for channels last it has code.
    auto conv_w = weights_from(x_own, dy0);
    auto x = x_own, dy = dy0;
    if (std::string_view{conv_w.impl_info_str()}.starts_with("ref")) {
      x      = memory{{{B, 1, 28, 28}, memory::data_type::f32, tag::nhwc}, engine_};
      dy     = memory{{{B, 32, 26, 26}, memory::data_type::f32, tag::nhwc}, engine_};
      conv_w = weights_from(x, dy);
      add(dnnl::reorder{x_own, x}, {{DNNL_ARG_FROM, x_own}, {DNNL_ARG_TO, x}});
      add(dnnl::reorder{dy0, dy}, {{DNNL_ARG_FROM, dy0}, {DNNL_ARG_TO, dy}});
    }
    auto const dk_own = memory{conv_w.diff_weights_desc(), engine_}, dconv_k = gradient(conv_k),
               dconv_b = gradient(conv_b);
    add(dnnl::convolution_backward_weights{conv_w},
        {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, dk_own}, {DNNL_ARG_DIFF_BIAS, dconv_b}});
    add(dnnl::reorder{dk_own, dconv_k}, {{DNNL_ARG_FROM, dk_own}, {DNNL_ARG_TO, dconv_k}});
  }

  /// One step of Adam; x (rows, 28, 28, 1), labels (rows); returns the mean loss.
  float step(float const* x, int const* labels) {
    x_.set_data_handle(const_cast<float*>(x));
    run(0, forward_);
    auto const loss = cross_entropy(labels);
    run(forward_, calls_.size());
    adam();
    return loss / static_cast<float>(rows_);
  }

 private:
  struct Trained {
    memory value, gradient;
    std::vector<float> m, v;
  };

  static desc plain(memory::dims d, tag t) { return {std::move(d), memory::data_type::f32, t}; }
  static float* floats(memory const& m) { return static_cast<float*>(m.get_data_handle()); }
  static std::size_t count(memory const& m) { return m.get_desc().get_size() / sizeof(float); }

  memory make(desc const& d, float limit) {
    auto made = memory{d, engine_};
    auto bits = std::uint32_t{12345};
    for (std::size_t i = 0; i < count(made); ++i) {
      bits            = bits * 1664525 + 1013904223;
      floats(made)[i] = limit * (static_cast<float>(bits >> 8) * 0x1p-23F - 1.0F);
    }
    return made;
  }
  memory gradient(memory const& value) {
    auto made = memory{value.get_desc(), engine_};
    trained_.push_back({value, made, std::vector<float>(count(value)), std::vector<float>(count(value))});
    return made;
  }
  void add(dnnl::primitive const& primitive, Args args) { calls_.emplace_back(primitive, std::move(args)); }
  void run(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) calls_[i].first.execute(stream_, calls_[i].second);
  }

  void dense_backward(dnnl::inner_product_forward::primitive_desc const& hint, memory const& x, memory const& k,
                      memory const& dy, memory const& dk, memory const& db, memory const& dx) {
    using chorale::onednn::describe_backward;
    auto const w = describe_backward<dnnl::inner_product_backward_weights>(engine_, none_, hint, x.get_desc(),
                                                                           k.get_desc(), db.get_desc(), dy.get_desc());
    add(dnnl::inner_product_backward_weights{w},
        {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, dk}, {DNNL_ARG_DIFF_BIAS, db}});
    auto const d = describe_backward<dnnl::inner_product_backward_data>(engine_, none_, hint, x.get_desc(),
                                                                        k.get_desc(), dy.get_desc());
    add(dnnl::inner_product_backward_data{d},
        {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, k}, {DNNL_ARG_DIFF_SRC, dx}});
  }
  void relu_backward(memory const& y, memory const& dy) {
    constexpr auto relu = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
    auto const f        = chorale::onednn::describe_eltwise(engine_, none_, relu, y.get_desc(), 0.0F);
    auto const b        = chorale::onednn::describe_eltwise_backward(engine_, none_, f, relu, y.get_desc(), 0.0F);
    add(dnnl::eltwise_backward{b}, {{DNNL_ARG_DST, y}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_SRC, dy}});
  }

  float cross_entropy(int const* labels) {
    auto loss = 0.0F;
    for (int r = 0; r < rows_; ++r) {
      auto const* const z = floats(logits_) + r * 10;
      auto* const d       = floats(d_logits_) + r * 10;
      auto const top      = *std::max_element(z, z + 10);
      auto sum            = 0.0F;
      for (int c = 0; c < 10; ++c) sum += d[c] = std::exp(z[c] - top);
      for (int c = 0; c < 10; ++c) d[c] /= sum * static_cast<float>(rows_);
      d[labels[r]] -= 1.0F / static_cast<float>(rows_);
      loss += top + std::log(sum) - z[labels[r]];
    }
    return loss;
  }

  void adam() {
    ++t_;
    auto const rate  = static_cast<float>(1e-3 / (1.0 - std::pow(0.9, t_)));
    auto const fix_v = static_cast<float>(1.0 / (1.0 - std::pow(0.999, t_)));
    for (auto& variable : trained_) {
      auto* const w       = floats(variable.value);
      auto const* const g = floats(variable.gradient);
      auto *const m = variable.m.data(), *const v = variable.v.data();
      auto const n = static_cast<std::int64_t>(variable.m.size());
#pragma omp parallel for simd num_threads(threads_) if (n > 10'000)
      for (std::int64_t i = 0; i < n; ++i) {
        m[i] = 0.9F * m[i] + 0.1F * g[i];
        v[i] = 0.999F * v[i] + 0.001F * g[i] * g[i];
        w[i] -= rate * m[i] / (std::sqrt(v[i] * fix_v) + 1e-7F);
      }
    }
  }

  int rows_, threads_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::primitive_attr none_;
  dnnl::stream stream_{engine_};
  memory x_, logits_, d_logits_;
  std::vector<std::pair<dnnl::primitive, Args>> calls_;
  std::size_t forward_ = 0;
  std::vector<Trained> trained_;
  int t_ = 0;
};

}  // namespace bench
