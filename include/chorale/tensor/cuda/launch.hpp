// SPDX-License-Identifier: Apache-2.0
//
// Our own CUDA kernels as the host compiler sees them; empty where it does not find CUDA. all.cuh defines them, in
// one .cu file of the program.
#pragma once

#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>

#include <cstddef>

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>

/// Each function queues its work and returns the launch's error code. Pointers are to memory that the device reaches;
/// images are (B, H, W, C). Where numbers are added up, the order is fixed: the same bits for the same numbers.
namespace chorale::cuda::launch {

/// Numbers on the device: an activation, the gradient by one, or a copy of variables in the activations' type.
struct Values {
  void* at    = nullptr;
  Elements of = Elements::f32;

  template <class T> T* as() const { return static_cast<T*>(at); }
};

/// y = x, rounded to the nearest
cudaError_t convert(std::size_t n, Values x, Values y, cudaStream_t queue);

/// Number of partial sums of squared_norm.
inline constexpr unsigned partials = 1024;
/// Number of partial sums of column_sums and ChannelSums, for that many columns: enough to fill a GPU.
constexpr std::size_t partials_of(std::size_t columns) {
  return columns > 4096 ? 8 : columns < 64 ? 512 : 32'768 / columns;
}

/// y = f(x); x and y may be one buffer. In `activate_back`, `of` is y where f' follows from y, else x. Here and below
/// all Values of a function have one element type, unless the function rounds.
cudaError_t activate(Activation f, float alpha, std::size_t n, Values x, Values y, cudaStream_t queue);
cudaError_t activate_back(Activation f, float alpha, std::size_t n, Values of, Values dy, Values dx,
                          cudaStream_t queue);

/// y (rows, width) += bias (width), then max(y, 0) where `relu` is 1
cudaError_t add_bias(std::size_t rows, std::size_t width, float const* bias, Values y, int relu, cudaStream_t queue);
/// sums (width) = the sum of the rows of x (rows, width)
///
/// scratch   (partials_of(width), width)
cudaError_t column_sums(std::size_t rows, std::size_t width, Values x, float* scratch, float* sums, cudaStream_t queue);
/// y (columns, rows) = x (rows, columns), transposed, and rounded to the element type of y
cudaError_t transpose(std::size_t rows, std::size_t columns, Values x, Values y, cudaStream_t queue);

/// Height and width of an image, in pixels.
struct Extent {
  int height, width;
};
/// y[b, i, j] = x[b, i - down, j - right], and 0 where x has no such pixel.
cudaError_t shift(std::size_t images, int channels, Extent from, Values x, int down, int right, Extent to, Values y,
                  cudaStream_t queue);

/// y = the largest or the mean of each window, padding left out, then max(y, 0) where `relu` is 1.
///
/// winners   (B, H', W', C): for max, the first of the largest pixels of the window; -1 where the ReLU passes no
///           gradient
cudaError_t pool(Pool kind, Window const& w, std::size_t images, Values x, Values y, int* winners, int relu,
                 cudaStream_t queue);
/// order     each dx adds up its windows from the top left: no two threads write one number
cudaError_t pool_back(Pool kind, Window const& w, std::size_t images, Values dy, int const* winners, Values dx,
                      cudaStream_t queue);

/// A convolution and the pool after it, computed in one pass: for images with one channel, at the start of a network.
struct ConvPool {
  Window conv, pool;
  int filters;

  static constexpr unsigned char nobody = 4;  // none of the pixels 0 to 3

  constexpr bool fits(Pool kind) const {
    auto const pads = pool.pad_before + pool.pad_after + pool.pad_left + pool.pad_right;
    return conv.channels == 1 && conv.kernel == 3 && conv.stride == 1 && kind == Pool::max && pool.kernel == 2 &&
           pool.stride == 2 && pads == 0;
  }
  /// Number of rows of y.
  constexpr std::size_t strips(std::size_t images) const {
    return images * static_cast<std::size_t>(pool.out_height());
  }
  /// Number of partial sums of gradients: enough to fill a GPU, or, where there are fewer, one for eight rows.
  constexpr std::size_t parts(std::size_t images) const {
    return (strips(images) + 7) / 8 < 512 ? (strips(images) + 7) / 8 : 512;
  }
  constexpr std::size_t scratch(std::size_t images) const {
    return parts(images) * 10 * static_cast<std::size_t>(filters);
  }
};
/// y = the largest of each window of the convolution plus bias (null: none), then max(y, 0) where `relu` is 1.
///
/// winners   (B, H'', W'', Filters): the first of the largest of four pixels; `nobody` where the ReLU passes no
///           gradient
cudaError_t conv_pool(ConvPool const& of, std::size_t images, Values x, float const* kernel, float const* bias,
                      Values y, unsigned char* winners, int relu, cudaStream_t queue);
/// d_kernel and d_bias (null: not computed) from dy, which has not gone through the ReLU
///
/// scratch   of.scratch(images)
cudaError_t conv_pool_back(ConvPool const& of, std::size_t images, Values x, Values dy, unsigned char const* winners,
                           float* scratch, float* d_kernel, float* d_bias, cudaStream_t queue);

/// y = a + b, then max(y, 0) where `relu` is 1; y may be a or b.
cudaError_t add(std::size_t n, Values a, Values b, Values y, int relu, cudaStream_t queue);

cudaError_t softmax(std::size_t rows, std::size_t classes, Values x, Values y, cudaStream_t queue);
cudaError_t softmax_back(std::size_t rows, std::size_t classes, Values y, Values dy, Values dx, cudaStream_t queue);

/// Mean and 1 / sqrt(variance + epsilon) of each channel (C).
struct Moments {
  float *mean, *inverse;
};
/// y = gamma · (x - mean) · inverse + beta, then max(y, 0) where `relu` is 1.
struct Normalization {
  Moments of;
  float const *gamma, *beta;
  int relu;
};
/// Sums over pixels, in parts of the pixels: (parts, 2 C). The reader adds up the parts.
struct ChannelSums {
  double* at;
  std::size_t parts;
};
/// to = for each channel the sum of x (pixels, C), then of x · x. to.parts is partials_of(C).
cudaError_t channel_sums(std::size_t pixels, std::size_t channels, Values x, ChannelSums to, cudaStream_t queue);
/// to = for each channel the sum of d, then of d · (x - mean), where d is dy after the ReLU's backward.
cudaError_t channel_sums_back(std::size_t pixels, std::size_t channels, Values x, Normalization const& of, Values dy,
                              ChannelSums to, cudaStream_t queue);
/// sums (2 C) = the sum of all parts, in one order
cudaError_t sum_parts(std::size_t channels, ChannelSums of, double* sums, cudaStream_t queue);
/// to = the moments from the sums of x over `count` pixels; d_mean and d_variance get mean and variance times rows.
cudaError_t moments(std::size_t channels, ChannelSums sums, double count, float rows, float epsilon, Moments to,
                    float* d_mean, float* d_variance, cudaStream_t queue);
cudaError_t moving_moments(std::size_t channels, float const* mean, float const* variance, float epsilon, Moments to,
                           cudaStream_t queue);
cudaError_t normalize(std::size_t pixels, std::size_t channels, Values x, Normalization const& by, Values y,
                      cudaStream_t queue);
/// Computes the gradients of beta and gamma from the sums of channel_sums_back, and writes them to sums (2 C), too, for
/// other replicas.
///
/// slopes    (2 C): the input of normalize_back, from the sums over `count` pixels
cudaError_t normalize_sums(std::size_t channels, ChannelSums of, Moments moments, double count, double* sums,
                           float* slopes, float* d_gamma, float* d_beta, cudaStream_t queue);
/// slopes (2 C) = the input of normalize_back, from sums to which other replicas have added theirs.
cudaError_t slopes(std::size_t channels, double const* sums, Moments of, double count, float* slopes,
                   cudaStream_t queue);
/// dx, with u = (x - mean) · inverse and d as in channel_sums_back:
///   dx = gamma · inverse · (d - mean of d - u · mean of d · u)
cudaError_t normalize_back(std::size_t pixels, std::size_t channels, Values x, Normalization const& of,
                           float const* slopes, Values dy, Values dx, cudaStream_t queue);

/// The losses that Kernels<Cpu> has under these names. Where rows are few, loss and sum are one launch.
cudaError_t sparse_cross_entropy(std::size_t rows, std::size_t classes, float const* logits, int const* labels,
                                 float* d_logits, SumOfRows to, cudaStream_t queue);
cudaError_t cross_entropy(std::size_t rows, std::size_t classes, float const* logits, float const* targets,
                          float* d_logits, SumOfRows to, cudaStream_t queue);
cudaError_t squared_error(std::size_t rows, std::size_t width, float const* outputs, float const* targets,
                          float* d_outputs, SumOfRows to, cudaStream_t queue);
/// Number of rows in which the first of the largest outputs is the label's.
cudaError_t hits(std::size_t rows, std::size_t classes, float const* outputs, int const* labels, SumOfRows to,
                 cudaStream_t queue);
/// x *= factor
cudaError_t multiply(std::size_t n, float* x, float factor, cudaStream_t queue);

/// Where a step is infinite or NaN: index of the first such gradient, and 0 for the loss. `no_bad`: nowhere.
inline constexpr unsigned long long no_bad = ~0ULL;
/// Indices of the first gradient and of the loss that are infinite or NaN; no_bad if there is none.
struct FirstBad {
  unsigned long long gradient = no_bad, loss = no_bad;

  constexpr bool none() const { return gradient == no_bad && loss == no_bad; }
};
/// Makes found->gradient the smallest of itself and of first + i, for all i for which x[i] is infinite or NaN; and
/// found->loss 0 if the loss is (null: not checked). n is not 0.
cudaError_t find_bad(std::size_t first, std::size_t n, float const* x, float const* loss, FirstBad* found,
                     cudaStream_t queue);
/// norm = the sum of x · x; scratch (partials)
cudaError_t squared_norm(std::size_t n, float const* x, double* scratch, double* norm, cudaStream_t queue);

/// Kinds of momentum of sgd. Here and below, one launch updates everything that is trained, or moved.
///
/// bad       memory of the device: nothing changes if it has found anything. Null: not checked
enum class Momentum { none, classic, nesterov };
/// Numbers of one update by SGD: the gradient is g · scale + decay · w, and w shrinks by shrink · w before the step.
struct Sgd {
  float rate, scale, momentum, decay, shrink;
};
cudaError_t sgd(Momentum kind, std::size_t n, float* w, float const* g, float* velocity, Sgd s, FirstBad const* bad,
                cudaStream_t queue);
/// Numbers of one update by Adam or AdamW.
struct Adam {
  float rate, scale, beta_1, beta_2, epsilon, decay, correct_2;  // rate is already corrected
};
cudaError_t adam(std::size_t n, float* w, float const* g, float* m, float* v, Adam s, FirstBad const* bad,
                 cudaStream_t queue);
/// next = how.keep · x + how.take · towards / rows, or x where anything is bad, and towards = 0
cudaError_t move(std::size_t n, float const* x, float* towards, float rows, Movement how, float* next,
                 FirstBad const* bad, cudaStream_t queue);

/// now    memory of the device
cudaError_t dropout(std::size_t rows, std::size_t width, Values x, float rate, StepNumbers const* now,
                    std::uint64_t stream, cudaStream_t queue);

/// x = 0
cudaError_t zero(std::size_t n, float* x, cudaStream_t queue);

/// A factor of a product in row-major memory without gaps; `transposed`: memory holds the transpose.
struct Matrix {
  float const* at;
  bool transposed = false;
};
/// c (m, n) = a (m, k) b (k, n), or c += a b where `adds` is 1. A thread for each number of c: for factors that do not
/// fill cuBLAS.
cudaError_t product(std::size_t m, std::size_t n, std::size_t k, Matrix a, Matrix b, float* c, int adds,
                    cudaStream_t queue);

/// Rows of a table by their numbers, in 1 or 4 bytes each.
struct Ids {
  void const* at;
  std::size_t bytes;
};
/// y (n, width) = the rows of table (rows, width) with these ids; NaN for an id that is in no row.
cudaError_t gather(std::size_t n, std::size_t rows, std::size_t width, float const* table, Ids ids, float* y,
                   cudaStream_t queue);
/// d_table += dy, each row to the row of its id
///
/// cost      every row of the table looks at all ids, so that no two threads write one number: n · rows · width
cudaError_t gather_back(std::size_t n, std::size_t rows, std::size_t width, Ids ids, float const* dy, float* d_table,
                        cudaStream_t queue);

/// y (rows, width) = x + vector (width); and d_vector += the sum of the rows of dy, dx += dy (null: not computed)
cudaError_t add_to_rows(std::size_t rows, std::size_t width, float const* x, float const* vector, float* y,
                        cudaStream_t queue);
cudaError_t add_to_rows_back(std::size_t rows, std::size_t width, float const* dy, float* d_vector, float* dx,
                             cudaStream_t queue);

/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta, for each of the vectors.
///
/// moments   (vectors, 2): mean and 1 / deviation, which backward reads
cudaError_t layer_norm(std::size_t vectors, std::size_t width, float const* x, float const* gamma, float const* beta,
                       float epsilon, float* moments, float* y, cudaStream_t queue);
/// Adds to d_gamma, d_beta and dx (null: not computed).
cudaError_t layer_norm_back(std::size_t vectors, std::size_t width, float const* x, float const* gamma,
                            float const* moments, float const* dy, float* d_gamma, float* d_beta, float* dx,
                            cudaStream_t queue);

/// Self-attention of sequences: x (rows, steps, 3 width), queries, keys and values side by side.
struct Attention {
  std::size_t rows, steps, heads, width;  // width: of all heads
  bool causal;                            // no query sees keys of later steps

  /// Numbers that forward leaves for backward, and scratch of backward.
  constexpr std::size_t kept() const { return 2 * rows * heads * steps * steps; }
  /// Keys that query t sees, and the first query that sees key u.
  constexpr std::size_t keys(std::size_t t) const { return causal ? t + 1 : steps; }
  constexpr std::size_t first_query(std::size_t u) const { return causal ? u : 0; }
};
/// y (rows, steps, width) of each head = softmax(q kᵀ / sqrt(W)) v, over the keys that a query sees.
cudaError_t attend(Attention of, float const* x, float* kept, float* y, cudaStream_t queue);
/// Adds to dx.
cudaError_t attend_back(Attention of, float const* x, float* kept, float const* dy, float* dx, cudaStream_t queue);

/// Initializes gradients: writes rows to the header, and the trailer of one replica.
cudaError_t begin_gradients(float* header, float* trailer, float rows, cudaStream_t queue);

}  // namespace chorale::cuda::launch

#endif
