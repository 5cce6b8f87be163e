// SPDX-License-Identifier: Apache-2.0
//
// Numbers in memory, of the types that CUDA's libraries take.
#pragma once

#include <chorale/core/half.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>

namespace stand_in {

inline float get(void const* memory, chorale::Elements of, std::size_t i) {
  switch (of) {
    case chorale::Elements::bf16: return static_cast<chorale::bf16 const*>(memory)[i];
    case chorale::Elements::fp16: return static_cast<chorale::fp16 const*>(memory)[i];
    default: return static_cast<float const*>(memory)[i];
  }
}
inline void put(void* memory, chorale::Elements of, std::size_t i, float x) {
  switch (of) {
    case chorale::Elements::bf16: static_cast<chorale::bf16*>(memory)[i] = chorale::bf16{x}; return;
    case chorale::Elements::fp16: static_cast<chorale::fp16*>(memory)[i] = chorale::fp16{x}; return;
    default: static_cast<float*>(memory)[i] = x;
  }
}

}  // namespace stand_in
