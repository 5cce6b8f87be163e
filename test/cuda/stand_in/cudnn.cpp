// SPDX-License-Identifier: Apache-2.0
//
// In place of cuDNN: those of its calls that the library makes, as loops on the CPU, after their documentation. See
// runtime.cpp.
#include "test/cuda/stand_in/numbers.hpp"
#include "test/cuda/stand_in/queue.hpp"

#include <cudnn.h>

#include <cstddef>
#include <cstring>
#include <vector>

extern "C" {

struct cudnnContext {
  cudaStream_t queue;
};
struct cudnnTensorStruct {
  int n, c, h, w;
  chorale::Elements of;
};
struct cudnnFilterStruct {
  int k, c, h, w;
  chorale::Elements of;
};
struct cudnnConvolutionStruct {
  int pad_h, pad_w, stride_h, stride_w;
};

static chorale::Elements elements(cudnnDataType_t type) {
  return type == CUDNN_DATA_BFLOAT16 ? chorale::Elements::bf16
         : type == CUDNN_DATA_HALF   ? chorale::Elements::fp16
                                     : chorale::Elements::f32;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* h) { return *h = new cudnnContext{}, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t h) { return delete h, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t queue) { return h->queue = queue, CUDNN_STATUS_SUCCESS; }
char const* cudnnGetErrorString(cudnnStatus_t) { return "?"; }
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) {
  return *d = new cudnnTensorStruct{}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return delete d, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type,
                                         int n, int c, int h, int w) {
  *d = {n, c, h, w, elements(type)};
  return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) {
  return *d = new cudnnFilterStruct{}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return delete d, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
  *d = {k, c, h, w, elements(type)};
  return format == CUDNN_TENSOR_NHWC ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) {
  return *d = new cudnnConvolutionStruct{}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) {
  return delete d, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int u, int v, int,
                                              int, cudnnConvolutionMode_t mode, cudnnDataType_t) {
  *d = {pad_h, pad_w, u, v};
  return mode == CUDNN_CROSS_CORRELATION ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t) {
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"

namespace {

/// Queues f(sums, x, w, y) for the places of each three numbers that belong together; then `to` gets the n sums. The
/// shapes must fit, the types be one, and scratch must be there.
template <class F>
cudnnStatus_t convolve(cudnnHandle_t handle, cudnnTensorStruct x, cudnnFilterStruct w, cudnnConvolutionStruct how,
                       cudnnTensorStruct y, void* scratch, std::size_t bytes, void* to, int n, F f) {
  if (bytes != 64 || x.of != w.of || x.of != y.of || y.n != x.n || y.c != w.k || w.c != x.c ||
      y.h != (x.h + 2 * how.pad_h - w.h) / how.stride_h + 1 || y.w != (x.w + 2 * how.pad_w - w.w) / how.stride_w + 1)
    return CUDNN_STATUS_BAD_PARAM;
  stand_in::put(handle->queue, [=] {
    std::memset(scratch, 1, bytes);
    auto sums = std::vector<float>(static_cast<std::size_t>(n));
    for (int b = 0; b < y.n; ++b)
      for (int i = 0; i < y.h; ++i)
        for (int j = 0; j < y.w; ++j)
          for (int k = 0; k < w.k; ++k)
            for (int r = 0; r < w.h; ++r)
              for (int s = 0; s < w.w; ++s) {
                auto const row = i * how.stride_h - how.pad_h + r, column = j * how.stride_w - how.pad_w + s;
                if (row < 0 || row >= x.h || column < 0 || column >= x.w) continue;
                for (int c = 0; c < x.c; ++c)
                  f(sums, ((b * x.h + row) * x.w + column) * x.c + c, ((k * w.h + r) * w.w + s) * w.c + c,
                    ((b * y.h + i) * y.w + j) * y.c + k);
              }
    for (std::size_t i = 0; i < sums.size(); ++i) stand_in::put(to, x.of, i, sums[i]);
  });
  return CUDNN_STATUS_SUCCESS;
}

/// A list of two: the first is not deterministic, the second needs 64 bytes of scratch.
template <class Result, class Algorithm>
cudnnStatus_t list_two(Algorithm first, Algorithm second, int* count, Result* results) {
  results[0].algo = first, results[0].status = CUDNN_STATUS_SUCCESS, results[0].determinism = CUDNN_NON_DETERMINISTIC;
  results[1].algo = second, results[1].status = CUDNN_STATUS_SUCCESS, results[1].determinism = CUDNN_DETERMINISTIC;
  return *count = 2, CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                     cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, int, int* n,
                                                     cudnnConvolutionFwdAlgoPerf_t* r) {
  return list_two(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, n, r);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                            cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                            cudnnFilterDescriptor_t, int, int* n,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* r) {
  return list_two(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, n, r);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                          cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                          cudnnTensorDescriptor_t, int, int* n,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* r) {
  return list_two(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, n, r);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                      cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t, std::size_t* bytes) {
  return *bytes = 64, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                             cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                             cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t,
                                                             std::size_t* bytes) {
  return *bytes = 64, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t,
                                                           std::size_t* bytes) {
  return *bytes = 64, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, void const*, cudnnTensorDescriptor_t x, void const* from,
                                      cudnnFilterDescriptor_t w, void const* kernel, cudnnConvolutionDescriptor_t how,
                                      cudnnConvolutionFwdAlgo_t, void* scratch, std::size_t bytes, void const*,
                                      cudnnTensorDescriptor_t y, void* to) {
  return convolve(h, *x, *w, *how, *y, scratch, bytes, to, y->n * y->c * y->h * y->w,
                  [=, of = x->of](auto& sums, auto a, auto b, auto c) {
                    sums[c] += stand_in::get(from, of, a) * stand_in::get(kernel, of, b);
                  });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, void const*, cudnnTensorDescriptor_t x, void const* from,
                                             cudnnTensorDescriptor_t y, void const* dy,
                                             cudnnConvolutionDescriptor_t how, cudnnConvolutionBwdFilterAlgo_t,
                                             void* scratch, std::size_t bytes, void const*, cudnnFilterDescriptor_t w,
                                             void* to) {
  return convolve(h, *x, *w, *how, *y, scratch, bytes, to, w->k * w->c * w->h * w->w,
                  [=, of = x->of](auto& sums, auto a, auto b, auto c) {
                    sums[b] += stand_in::get(from, of, a) * stand_in::get(dy, of, c);
                  });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, void const*, cudnnFilterDescriptor_t w, void const* kernel,
                                           cudnnTensorDescriptor_t y, void const* dy, cudnnConvolutionDescriptor_t how,
                                           cudnnConvolutionBwdDataAlgo_t, void* scratch, std::size_t bytes, void const*,
                                           cudnnTensorDescriptor_t x, void* to) {
  return convolve(h, *x, *w, *how, *y, scratch, bytes, to, x->n * x->c * x->h * x->w,
                  [=, of = x->of](auto& sums, auto a, auto b, auto c) {
                    sums[a] += stand_in::get(kernel, of, b) * stand_in::get(dy, of, c);
                  });
}

}  // extern "C"
