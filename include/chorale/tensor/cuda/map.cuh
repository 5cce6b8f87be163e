// SPDX-License-Identifier: Apache-2.0
//
// Work of one thread of a grid on the elements of arrays. No CUDA header is included: a test compiles this file for the
// CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chorale::cuda::launch::detail {

/// How a kernel uses an array, element by element. `column`: the array has one number for each column of the rows, read
/// once by a thread. `index`: without an array, each element is its index.
enum class Use { read, write, change, column, index };

template <Use U, class T> struct Array {
  T* at;

  static constexpr std::size_t size = U == Use::column || U == Use::index ? 1 : sizeof(T);  // bytes of an element
};
template <class T> Array<Use::read, T const> read(T const* x) { return {x}; }
template <class T> Array<Use::write, T> written(T* y) { return {y}; }
template <class T> Array<Use::change, T> changed(T* x) { return {x}; }
template <class T> Array<Use::column, T const> of_column(T const* x) { return {x}; }
inline constexpr Array<Use::index, std::size_t> index_of_each{nullptr};

/// Elements side by side, which a thread loads and stores as one: 16 bytes at a time fill a GPU's bus.
template <class T, unsigned N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};
template <class... A> constexpr unsigned widest() {
  auto bytes = std::size_t{1};
  ((bytes = A::size > bytes ? A::size : bytes), ...);
  return static_cast<unsigned>(16 / bytes);
}
template <unsigned N, Use U, class T> bool lies_for(Array<U, T> array) {
  return reinterpret_cast<std::uintptr_t>(array.at) % alignof(Pack<T, N>) == 0;
}

/// N elements of an array, in registers.
template <unsigned N, Use U, class T> class Slot {
 public:
  __device__ Slot(Array<U, T> of, std::size_t column) : array_{of.at} {
    if constexpr (U == Use::column) now_ = *pack(column);
  }

  __device__ void load(std::size_t i) {
    if constexpr (U == Use::read || U == Use::change) now_ = *pack(i);
    if constexpr (U == Use::index)
      for (unsigned k = 0; k < N; ++k) now_.at[k] = i + k;
  }
  __device__ void store(std::size_t i) const {
    if constexpr (U == Use::write || U == Use::change) *pack(i) = now_;
  }
  __device__ auto& operator[](unsigned k) { return now_.at[k]; }

 private:
  using Now = Pack<std::remove_const_t<T>, N>;

  __device__ auto* pack(std::size_t i) const {
    return reinterpret_cast<std::conditional_t<std::is_const_v<T>, Now const, Now>*>(array_ + i);
  }

  T* array_;
  Now now_;
};

template <unsigned N, class F, class... S>
__device__ void map_packs(std::size_t first, std::size_t end, std::size_t step, F const& f, S... slots) {
  for (auto pack = first; pack < end; pack += step) {
    (slots.load(pack * N), ...);
    for (unsigned k = 0; k < N; ++k) f(slots[k]...);
    (slots.store(pack * N), ...);
  }
}

/// Calls f(an element of each array) for the part of n elements that belongs to thread `me` of `all`.
///
/// columns   0: none. Else a multiple of N, n is a multiple of it, and `all` has at least a thread for each N columns
template <unsigned N, class F, Use... U, class... T>
__device__ void map_part(std::size_t me, std::size_t all, std::size_t n, std::size_t columns, F const& f,
                         Array<U, T>... arrays) {
  auto const packs  = columns / N;
  auto const step   = packs == 0 ? all : all / packs * packs;  // a thread stays in its columns
  auto const column = packs == 0 ? 0 : me % packs * N;
  if (me < step) map_packs<N>(me, n / N, step, f, Slot<N, U, T>{arrays, column}...);
  if (me < n % N) map_packs<1>(n / N * N + me, n, n, f, Slot<1, U, T>{arrays, 0}...);
}

}  // namespace chorale::cuda::launch::detail
