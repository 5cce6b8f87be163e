// SPDX-License-Identifier: Apache-2.0
//
// In place of cuBLASLt: those of its calls that the library makes, as loops on the CPU, after their documentation. See
// runtime.cpp.
#include "test/cuda/stand_in/numbers.hpp"
#include "test/cuda/stand_in/queue.hpp"

#include <chorale/core/half.hpp>

#include <cublasLt.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

// What is behind cuBLASLt's handles.
struct Matrix {
  std::uint64_t rows, columns;
  std::int64_t leading;
  chorale::Elements of;
};
struct Work {
  cublasComputeType_t compute;
  std::int32_t turn_a, turn_b;
  cublasLtEpilogue_t after;
  void* bias;
};

template <class T, class Handle> auto create(Handle* handle, T value) {
  *handle = reinterpret_cast<Handle>(new T{value});
}
template <class T> auto& as(void const* p) { return *static_cast<T*>(const_cast<void*>(p)); }

/// A factor as it is multiplied.
float rounded(float x, cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000U) & ~0x1fffU);
    case CUBLAS_COMPUTE_32F_FAST_16BF: return chorale::bf16{x};
    case CUBLAS_COMPUTE_32F_FAST_16F: return chorale::fp16{x};
    default: return x;
  }
}

void multiply(Work const& w, void const* a, Matrix const& x, void const* b, Matrix const& y, void* to,
              Matrix const& z) {
  auto const k  = w.turn_a ? x.rows : x.columns;
  auto const at = [](void const* data, Matrix const& l, std::uint64_t row, std::uint64_t column) {
    return stand_in::get(data, l.of, column * static_cast<std::uint64_t>(l.leading) + row);
  };
  for (std::uint64_t i = 0; i < z.rows; ++i) {
    auto sum_of_a = 0.0F;
    for (std::uint64_t l = 0; l < k; ++l) sum_of_a += w.turn_a ? at(a, x, l, i) : at(a, x, i, l);
    if (w.after == CUBLASLT_EPILOGUE_BGRADA) stand_in::put(w.bias, z.of, i, sum_of_a);
    for (std::uint64_t j = 0; j < z.columns; ++j) {
      auto sum = 0.0F;
      for (std::uint64_t l = 0; l < k; ++l)
        sum += rounded(w.turn_a ? at(a, x, l, i) : at(a, x, i, l), w.compute) *
               rounded(w.turn_b ? at(b, y, j, l) : at(b, y, l, j), w.compute);
      if (w.after == CUBLASLT_EPILOGUE_BIAS || w.after == CUBLASLT_EPILOGUE_RELU_BIAS)
        sum += stand_in::get(w.bias, z.of, i);
      if ((w.after == CUBLASLT_EPILOGUE_RELU || w.after == CUBLASLT_EPILOGUE_RELU_BIAS) && sum < 0) sum = 0;
      stand_in::put(to, z.of, j * static_cast<std::uint64_t>(z.leading) + i, sum);
    }
  }
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { return create(h, 0), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return delete &as<int>(h), CUBLAS_STATUS_SUCCESS; }
char const* cublasLtGetStatusName(cublasStatus_t) { return "?"; }
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  using chorale::Elements;
  auto const make = [&](Elements of) { return create(l, Matrix{rows, columns, leading, of}), CUBLAS_STATUS_SUCCESS; };
  switch (type) {
    case CUDA_R_32F: return make(Elements::f32);
    case CUDA_R_16BF: return make(Elements::bf16);
    case CUDA_R_16F: return make(Elements::fp16);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  return delete &as<Matrix>(l), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType) {
  create(d, Work{compute, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_16F: return CUBLAS_STATUS_SUCCESS;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return delete &as<Work>(d), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              void const* value, std::size_t bytes) {
  auto const put = [&](auto& to) {
    if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    return std::memcpy(&to, value, bytes), CUBLAS_STATUS_SUCCESS;
  };
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return put(as<Work>(d).turn_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return put(as<Work>(d).turn_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return put(as<Work>(d).after);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return put(as<Work>(d).bias);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  return create(p, 0), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return delete &as<int>(p), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t which, void const*,
                                                    std::size_t bytes) {
  auto const wanted = which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? sizeof(std::uint64_t) : sizeof(std::uint32_t);
  return bytes == wanted ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/// Does the shape of each factor fit the result, and do types: factors of one, and float or the same in the result?
/// BGRADA is refused for results of an odd number of rows, so that both ways to a bias' gradient are tested.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t to, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t*, int* count) {
  auto const& w = as<Work>(d);
  auto const &x = as<Matrix>(a), &y = as<Matrix>(b), &z = as<Matrix>(to);
  auto const m = w.turn_a ? x.columns : x.rows, k = w.turn_a ? x.rows : x.columns;
  auto const n = w.turn_b ? y.rows : y.columns, k_of_b = w.turn_b ? y.columns : y.rows;
  if (m != z.rows || n != z.columns || k != k_of_b) return CUBLAS_STATUS_INVALID_VALUE;
  if (x.of != y.of || (z.of != x.of && z.of != chorale::Elements::f32)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *count = w.after == CUBLASLT_EPILOGUE_BGRADA && m % 2 == 1 ? 0 : 1;
  return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, void const*, void const* a,
                              cublasLtMatrixLayout_t of_a, void const* b, cublasLtMatrixLayout_t of_b, void const*,
                              void const*, cublasLtMatrixLayout_t, void* to, cublasLtMatrixLayout_t of_d,
                              cublasLtMatmulAlgo_t const*, void*, std::size_t, cudaStream_t stream) {
  stand_in::put(stream, [=, w = as<Work>(d), x = as<Matrix>(of_a), y = as<Matrix>(of_b), z = as<Matrix>(of_d)] {
    multiply(w, a, x, b, y, to, z);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
