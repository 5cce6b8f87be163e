// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/half.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace chorale {
namespace detail {

template <class T> constexpr Element element_of() {
  if constexpr (std::same_as<T, float>) return Element::f32;
  else if constexpr (std::same_as<T, double>) return Element::f64;
  else if constexpr (std::same_as<T, bf16>) return Element::bf16;
  else if constexpr (std::same_as<T, fp16>) return Element::f16;
  else if constexpr (std::same_as<T, std::int32_t>) return Element::i32;
  else if constexpr (std::same_as<T, std::int64_t>) return Element::i64;
  else if constexpr (std::same_as<T, std::uint32_t>) return Element::u32;
  else if constexpr (std::same_as<T, std::uint64_t>) return Element::u64;
  else return Element::byte;
}

/// The type in which T is added and multiplied: float for 16-bit numbers; unsigned for integers, whose overflow is
/// defined.
template <class T> struct computed_in {
  using type = T;
};
template <class T> requires std::same_as<T, bf16> || std::same_as<T, fp16> struct computed_in<T> {
  using type = float;
};
template <std::integral T> struct computed_in<T> {
  using type = std::make_unsigned_t<T>;
};

}  // namespace detail

/// The Element that stands for type T where ranks compare their operations.
template <class T> inline constexpr Element element_of = detail::element_of<T>();

/// A number type that can be reduced: float, double, bf16, fp16, or an integer of 32 or 64 bits.
template <class T> concept Reducible = element_of<T> != Element::byte;

/// Combines two elements: `a` of the ranks before, `b` of the next rank. A NaN on either side stays; integers wrap.
///
/// order   min and max of zeros of both signs give b
template <Op op, Reducible T> constexpr T combine(T a, T b) {
  using In = typename detail::computed_in<T>::type;
  if constexpr (op == Op::sum) return static_cast<T>(static_cast<In>(a) + static_cast<In>(b));
  else if constexpr (op == Op::product) return static_cast<T>(static_cast<In>(a) * static_cast<In>(b));
  else if constexpr (op == Op::min) return a < b || a != a ? a : b;
  else return a > b || a != a ? a : b;
}

/// Calls f with combine<op> as a function object: the choice is made once, outside of any loop over elements.
template <class F> void with_combine(Op op, F&& f) {
  switch (op) {
    case Op::sum: return f([]<class T>(T a, T b) { return combine<Op::sum>(a, b); });
    case Op::min: return f([]<class T>(T a, T b) { return combine<Op::min>(a, b); });
    case Op::max: return f([]<class T>(T a, T b) { return combine<Op::max>(a, b); });
    case Op::product: return f([]<class T>(T a, T b) { return combine<Op::product>(a, b); });
  }
}

/// x[i] = combine(before[i], x[i]); the two do not overlap.
template <Reducible T> void combine_after(Op op, Span<std::type_identity_t<T> const> before, Span<T> x) {
  with_combine(op, [&](auto combined) {
    auto const* __restrict a = before.data();
    auto* __restrict b       = x.data();
    for (std::size_t i = 0; i < x.size(); ++i) b[i] = combined(a[i], b[i]);
  });
}

/// x[i] = combine(x[i], next[i]); the two do not overlap.
template <Reducible T> void combine_before(Op op, Span<T> x, Span<std::type_identity_t<T> const> next) {
  with_combine(op, [&](auto combined) {
    auto* __restrict a       = x.data();
    auto const* __restrict b = next.data();
    for (std::size_t i = 0; i < x.size(); ++i) a[i] = combined(a[i], b[i]);
  });
}

/// Replaces every NaN by the same one: when two NaNs are added, a processor may keep the bits of either.
template <Reducible T> void settle_nans(Span<T> x) {
  if constexpr (!std::integral<T>) {
    auto const nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    for (auto& value : x) value = value != value ? nan : value;
  }
}

}  // namespace chorale
