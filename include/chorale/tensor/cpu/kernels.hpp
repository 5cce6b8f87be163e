// SPDX-License-Identifier: Apache-2.0
//
// The kernels of Cpu. Those for layers have separate headers, beside this one; losses, update rules and dropout are
// loops here, written so that the compiler vectorises them.
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/cpu/onednn.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>
#include <chorale/tensor/sum.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chorale::cpu {

/// Loops over arrays of float, written so that the compiler makes vector instructions of them.
struct Loops {
  /// y = a + b, n numbers; y may be a or b
  static void sum(std::size_t n, float const* a, float const* b, float* y) {
    for (std::size_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
  }
  /// y = max(a + b, 0), n numbers; y may be a or b. NaN stays
  static void sum_relu(std::size_t n, float const* a, float const* b, float* y) {
    for (std::size_t i = 0; i < n; ++i) {
      auto const both = a[i] + b[i];
      y[i]            = both < 0 ? 0 : both;
    }
  }
  /// y = x, n numbers
  static void copy(std::size_t n, float const* x, float* y) { std::copy_n(x, n, y); }
  /// next = how.keep · x + how.take · towards / rows, and towards = 0; n numbers
  static void move(std::size_t n, float const* x, float* towards, float rows, Movement how, float* next) {
    for (std::size_t i = 0; i < n; ++i) {
      next[i]    = how.keep * x[i] + how.take * (towards[i] / rows);
      towards[i] = 0;
    }
  }
  /// Memory that only kernels read.
  class Scratch {
   public:
    /// Returns memory for n numbers: the same memory unless n is larger than before.
    float* take(std::size_t n) {
      if (numbers_.size() < n) numbers_.resize(n);
      return numbers_.data();
    }

   private:
    std::vector<float> numbers_;
  };

  /// x *= factor, n numbers
  static void multiply(std::size_t n, float* x, float factor) {
    for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
  }

  /// Sum over rows of -log softmax(logits)[label], and its gradient by the logits.
  ///
  /// logits, d_logits    (rows, classes); d_logits = softmax(logits) - onehot(label), and may be logits
  /// labels              (rows), each in [0, classes)
  /// source              tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  static float sparse_cross_entropy(std::size_t rows, std::size_t classes, float const* logits, int const* labels,
                                    float* d_logits) {
    return static_cast<float>(sum_over(rows, [=](std::size_t r) {
      auto const at     = r * classes;
      auto const label  = at + static_cast<std::size_t>(labels[r]);
      auto const wanted = logits[label];
      auto const log_z  = softmax(classes, logits + at, d_logits + at);
      d_logits[label] -= 1.0F;
      return log_z - wanted;
    }));
  }

  /// Sum over rows of -Σ target · log softmax(logits), for a distribution over classes in each row, and its gradient.
  ///
  /// targets   (rows, classes), each row sums to 1
  /// source    tf.keras.losses.CategoricalCrossentropy(from_logits=True)
  static float cross_entropy(std::size_t rows, std::size_t classes, float const* logits, float const* targets,
                             float* d_logits) {
    auto sum = 0.0;
    for (std::size_t r = 0; r < rows; ++r, logits += classes, targets += classes, d_logits += classes) {
      auto const log_z = softmax(classes, logits, d_logits);
      sum += sum_over(classes, [=](std::size_t c) {
        d_logits[c] -= targets[c];
        return targets[c] * (log_z - logits[c]);
      });
    }
    return static_cast<float>(sum);
  }

  /// The smallest probability whose logarithm is taken; those below it count as this one.
  static constexpr float least_probability = 1e-7F;

  /// Sum over rows of -log p[label], and its gradient by the probabilities.
  ///
  /// p, d_p    (rows, classes); d_p = -onehot(label) / p
  /// labels    (rows), each in [0, classes)
  /// source    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=False)
  static float sparse_cross_entropy_of_probabilities(std::size_t rows, std::size_t classes, float const* p,
                                                     int const* labels, float* d_p) {
    std::fill_n(d_p, rows * classes, 0.0F);
    return static_cast<float>(sum_over(rows, [=](std::size_t r) {
      auto const label = r * classes + static_cast<std::size_t>(labels[r]);
      auto const at    = std::max(p[label], least_probability);
      d_p[label]       = -1.0F / at;
      return -std::log(at);
    }));
  }

  /// Sum over rows of -Σ target · log p, and its gradient by the probabilities.
  ///
  /// p, targets, d_p    (rows, classes); d_p = -target / p
  /// source             tf.keras.losses.CategoricalCrossentropy(from_logits=False)
  static float cross_entropy_of_probabilities(std::size_t rows, std::size_t classes, float const* p,
                                              float const* targets, float* d_p) {
    return static_cast<float>(sum_over(rows * classes, [=](std::size_t i) {
      auto const at = std::max(p[i], least_probability);
      d_p[i]        = -targets[i] / at;
      return -targets[i] * std::log(at);
    }));
  }

  /// Sum over rows of the mean over outputs of (output - target)^2, and its gradient by the outputs.
  ///
  /// source    tf.keras.losses.MeanSquaredError
  static float squared_error(std::size_t rows, std::size_t width, float const* outputs, float const* targets,
                             float* d_outputs) {
    auto const scale = 1.0F / static_cast<float>(width);
    return static_cast<float>(sum_of_many(rows * width, [=](std::size_t i) {
      auto const difference = outputs[i] - targets[i];
      d_outputs[i]          = 2.0F * difference * scale;
      return difference * difference * scale;
    }));
  }

  /// True if no value is infinite or NaN: no exponent has all its bits.
  static bool finite(Span<float const> x) {
    auto bad = std::uint32_t{0};
    for (std::size_t i = 0; i < x.size(); ++i)
      bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(x[i]) & 0x7f80'0000U) == 0x7f80'0000U);
    return bad == 0;
  }

  /// Sum of squares, added up in double along a fixed tree. See SquareTree.
  static double squared_norm(Span<float const> g) { return SquareTree::sum(g); }

  struct SgdStep {
    float rate, scale, momentum;  // the gradient is g · scale + decay · w;
    float decay = 0, shrink = 0;  // before the step, w shrinks by shrink · w
  };

  static void sgd(Span<float> w, float const* g, SgdStep s) {
    float* const value = w.data();
    auto const keep    = 1.0F - s.shrink;
    for (std::size_t i = 0; i < w.size(); ++i)
      value[i] = keep * value[i] - s.rate * (g[i] * s.scale + s.decay * value[i]);
  }

  /// v = momentum · v - rate · g; w += v, or, in sgd_nesterov, w += momentum · v - rate · g
  static void sgd_momentum(Span<float> w, float const* g, float* velocity, SgdStep s) {
    float* const value = w.data();
    auto const keep    = 1.0F - s.shrink;
    for (std::size_t i = 0; i < w.size(); ++i) {
      velocity[i] = normal(s.momentum * velocity[i] - s.rate * (g[i] * s.scale + s.decay * value[i]));
      value[i]    = keep * value[i] + velocity[i];
    }
  }
  static void sgd_nesterov(Span<float> w, float const* g, float* velocity, SgdStep s) {
    float* const value = w.data();
    auto const keep    = 1.0F - s.shrink;
    for (std::size_t i = 0; i < w.size(); ++i) {
      auto const step = s.rate * (g[i] * s.scale + s.decay * value[i]);
      velocity[i]     = normal(s.momentum * velocity[i] - step);
      value[i]        = keep * value[i] + (s.momentum * velocity[i] - step);
    }
  }

  struct AdamStep {
    float rate, scale, beta_1, beta_2, epsilon, decay;  // the gradient is g · scale; w shrinks by decay
    float correct_1, correct_2;                         // 1 / (1 - beta^t)
  };

  /// cost      one pass over all four, shared by as many threads as kernels run on if they are large
  /// source    Kingma & Ba, ICLR 2015, algorithm 1; decay as in Loshchilov & Hutter, ICLR 2019
  static void adam(Span<float> w, float const* g, float* m, float* v, AdamStep s) {
    in_parts(w.size(), [=](std::size_t begin, std::size_t end) {
      adam(w.subspan(begin, end - begin), g + begin, m + begin, v + begin, s, s.rate * s.correct_1);
    });
  }

  /// y = x · keep-mask / (1 - rate); the mask is a function of (seed, step, global row), whatever the share.
  ///
  /// stream    names the layer
  static void dropout(std::size_t rows, std::size_t width, float* x, float rate, Pass const& pass,
                      std::uint64_t stream) {
    drop(rows, width, rate, pass, stream, [&](std::size_t r, std::size_t i) -> float& { return x[r * width + i]; });
  }

 protected:
  /// Dropout of numbers at(row, i).
  template <class At>
  static void drop(std::size_t rows, std::size_t width, float rate, Pass const& pass, std::uint64_t stream, At&& at) {
    auto const random = Random{pass.now.drawn(), stream};
    auto const scale  = 1.0F / (1.0F - rate);
    auto const limit  = static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
    auto const blocks = (width + 3) / 4;  // Philox gives four words at a time
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t b = 0; b < blocks; ++b) {
        auto const words = random.words((pass.now.first_row + r) * blocks + b);
        for (std::size_t k = 0; k < std::min<std::size_t>(4, width - 4 * b); ++k) {
          auto& x = at(r, 4 * b + k);
          x       = words[k] < limit ? 0.0F : x * scale;
        }
      }
  }

 private:
  /// x, or 0 where x is subnormal: cores take a hundred times as long with such numbers. The optimizer state of a unit
  /// without a gradient decays, and would become subnormal after some 800 steps, for good.
  static float normal(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0.0F : x; }

  /// The loop of adam(). A function, whose numbers no store can change: else compilers make no vectors.
  static void adam(Span<float> w, float const* g, float* m, float* v, AdamStep s, float rate) {
    float* const value = w.data();
    for (std::size_t i = 0; i < w.size(); ++i) {
      auto const grad = g[i] * s.scale;
      m[i]            = normal(s.beta_1 * m[i] + (1.0F - s.beta_1) * grad);
      v[i]            = normal(s.beta_2 * v[i] + (1.0F - s.beta_2) * (grad * grad));
      value[i]        = value[i] * (1.0F - s.decay) - rate * (m[i] / (std::sqrt(v[i] * s.correct_2) + s.epsilon));
    }
  }

  /// Calls f(begin, end) for ranges that are all of n numbers together: one, or several on as many threads as kernels
  /// run on, if there are enough numbers that threads save more than they cost.
  template <class F> static void in_parts(std::size_t n, F const& f) {
    constexpr auto part = std::size_t{1} << 16;
    if (n < 8 * part) return f(std::size_t{0}, n);
    Cpu::each(static_cast<std::ptrdiff_t>((n + part - 1) / part), [&](std::ptrdiff_t i) {
      auto const begin = static_cast<std::size_t>(i) * part;
      f(begin, std::min(n, begin + part));
    });
  }

  /// Writes softmax(logits) and returns log Σ exp(logits). Of few classes with libm's exp: there a loop of vectors saves
  /// nothing, and would only change their bits.
  static float softmax(std::size_t classes, float const* logits, float* p) {
    if (classes >= 32) return cpu::softmax(classes, logits, p);
    auto const top = *std::max_element(logits, logits + classes);
    auto z         = 0.0F;
    for (std::size_t c = 0; c < classes; ++c) z += p[c] = std::exp(logits[c] - top);
    for (std::size_t c = 0; c < classes; ++c) p[c] /= z;
    return top + std::log(z);
  }
};

}  // namespace chorale::cpu

namespace chorale {

/// Kernels of CPUs: oneDNN, and loops of this library where oneDNN has none or a slower one.
template <> struct Kernels<Cpu> : cpu::Loops {
  using layout  = onednn::desc;
  using runtime = onednn::Runtime;

  static layout image(int rows, int h, int w, int c) { return onednn::image(rows, h, w, c); }
  static layout matrix(int rows, int columns) { return onednn::matrix(rows, columns); }
  static std::size_t bytes(layout const& l) { return l.get_size(); }

  using cpu::Loops::copy;
  /// y = x, and y += x, both in one layout
  static void copy(layout const& l, float const* x, float* y) { std::copy_n(x, bytes(l) / sizeof(float), y); }
  static void add(layout const& l, float const* x, float* y) { sum(bytes(l) / sizeof(float), y, x, y); }

  using cpu::Loops::dropout;
  using Places = onednn::Places;
  /// Dropout of an activation in any layout: what is dropped does not depend on it.
  static void dropout(std::size_t rows, Places const& lie, float* x, float rate, Pass const& pass,
                      std::uint64_t stream) {
    if (lie.in_order()) return cpu::Loops::dropout(rows, lie.width(), x, rate, pass, stream);
    drop(rows, lie.width(), rate, pass, stream, [&](std::size_t r, std::size_t i) -> float& { return x[lie(r, i)]; });
  }

  class Conv2D;
  class Conv2DTranspose;
  class Pool2D;
  class ConvPool;
  class Dense;
  class Activate;
  class Softmax;
  class BatchNorm;
  class Sum;
  class ToRows;
  using ToPlain = ToRows;
};

}  // namespace chorale
