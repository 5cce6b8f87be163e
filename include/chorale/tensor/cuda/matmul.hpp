// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices by cuBLASLt; empty where the compiler does not find it.
#pragma once

#include <chorale/tensor/cuda/runtime.hpp>

#include <cstdint>

#if __has_include(<cublasLt.h>) && __has_include(<cudnn.h>)

namespace chorale::cuda {

/// D (m, n) = A (m, k) · B (k, n), accumulated in float, with an epilogue in the same kernel; made once, then queued
/// every step. A and B have one element type; D may be float where they are halves.
///
/// All matrices are column-major, as in cuBLAS: a row-major (B, N) is an (N, B) here.
///
/// order   the same bits for the same numbers
class Product {
 public:
  struct Factor {
    launch::Values data;
    int rows, columns;  // as stored
    cublasOperation_t turn = CUBLAS_OP_N;
  };
  /// Epilogue of a product. bias (m): read by EPILOGUE_BIAS and RELU_BIAS, written by BGRADA; element type of D
  struct After {
    cublasLtEpilogue_t what = CUBLASLT_EPILOGUE_DEFAULT;
    void const* bias        = nullptr;
  };

  Product() = default;
  Product(Runtime& rt, Factor a, Factor b, launch::Values d, int m, int n, After after)
      : rt_{&rt}, a_{a.data.at}, b_{b.data.at}, d_{d.at} {
    describe(a, b, after);
    layout_a_ = layout(a.data.of, a.rows, a.columns);
    layout_b_ = layout(b.data.of, b.rows, b.columns);
    layout_d_ = layout(d.of, m, n);
    choose();
  }

  /// True if cuBLASLt has a kernel for the product with its epilogue.
  explicit operator bool() const { return found_; }

  void operator()() const {
    auto const one = 1.0F, zero = 0.0F;
    expect(cublasLtMatmul(rt_->products(), product_.get(), &one, a_, layout_a_.get(), b_, layout_b_.get(), &zero, d_,
                          layout_d_.get(), d_, layout_d_.get(), &algorithm_, rt_->product_scratch(),
                          Runtime::product_bytes, queue()),
           "cublasLtMatmul");
  }

  /// Makes the product read one factor at another address from now on.
  void point_a(void const* data) { a_ = data; }
  void point_b(void const* data) { b_ = data; }

 private:
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  static cudaDataType type(Elements of) {
    switch (of) {
      case Elements::f32: return CUDA_R_32F;
      case Elements::bf16: return CUDA_R_16BF;
      case Elements::fp16: return CUDA_R_16F;
    }
    return CUDA_R_32F;
  }
  static Layout layout(Elements of, int rows, int columns) {
    cublasLtMatrixLayout_t made = nullptr;
    expect(cublasLtMatrixLayoutCreate(&made, type(of), static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(columns), rows),
           "cublasLtMatrixLayoutCreate");
    return Layout{made};
  }

  static cublasComputeType_t compute(Products products) {
    switch (products) {
      case Products::f32: return CUBLAS_COMPUTE_32F;
      case Products::tf32: return CUBLAS_COMPUTE_32F_FAST_TF32;
      case Products::bf16: return CUBLAS_COMPUTE_32F_FAST_16BF;
      case Products::fp16: return CUBLAS_COMPUTE_32F_FAST_16F;
    }
    return CUBLAS_COMPUTE_32F;
  }

  void describe(Factor a, Factor b, After after) {
    cublasLtMatmulDesc_t made = nullptr;
    expect(cublasLtMatmulDescCreate(&made, a.data.of == Elements::f32 ? compute(rt_->rounds_to) : CUBLAS_COMPUTE_32F,
                                    CUDA_R_32F),
           "cublasLtMatmulDescCreate");
    product_.reset(made);
    auto const set = [&](cublasLtMatmulDescAttributes_t which, auto const& value) {
      expect(cublasLtMatmulDescSetAttribute(made, which, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, a.turn);
    set(CUBLASLT_MATMUL_DESC_TRANSB, b.turn);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, after.what);
    if (after.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, after.bias);
  }

  void choose() {
    cublasLtMatmulPreference_t made = nullptr;
    expect(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    auto const wishes = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>{made};
    auto const wish   = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      expect(cublasLtMatmulPreferenceSetAttribute(made, which, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
    };
    wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{Runtime::product_bytes});
    for (auto const which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      wish(which, std::uint32_t{64});  // the alignment that the plan keeps
    auto best       = cublasLtMatmulHeuristicResult_t{};
    int count       = 0;
    auto const code = cublasLtMatmulAlgoGetHeuristic(rt_->products(), product_.get(), layout_a_.get(), layout_b_.get(),
                                                     layout_d_.get(), layout_d_.get(), made, 1, &best, &count);
    if (code != CUBLAS_STATUS_NOT_SUPPORTED) expect(code, "cublasLtMatmulAlgoGetHeuristic");
    found_     = code == CUBLAS_STATUS_SUCCESS && count > 0;
    algorithm_ = best.algo;
  }

  Runtime* rt_   = nullptr;
  void const* a_ = nullptr;
  void const* b_ = nullptr;
  void* d_       = nullptr;
  bool found_    = false;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product_;
  Layout layout_a_, layout_b_, layout_d_;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace chorale::cuda

#endif
