// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/half.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace chorale::pjrt {

/// Type of an element of a buffer. The values are PJRT's.
enum class ElementType : int {
  invalid = 0,
  pred    = 1,
  s8      = 2,
  s16     = 3,
  s32     = 4,
  s64     = 5,
  u8      = 6,
  u16     = 7,
  u32     = 8,
  u64     = 9,
  f16     = 10,
  f32     = 11,
  f64     = 12,
  bf16    = 13
};

/// Bytes of one element on the host; 0 for a type that this library does not use.
constexpr std::size_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::pred:
    case ElementType::s8:
    case ElementType::u8: return 1;
    case ElementType::s16:
    case ElementType::u16:
    case ElementType::f16:
    case ElementType::bf16: return 2;
    case ElementType::s32:
    case ElementType::u32:
    case ElementType::f32: return 4;
    case ElementType::s64:
    case ElementType::u64:
    case ElementType::f64: return 8;
    default: return 0;
  }
}

/// Name of an element type in the text of a module: "f32", "i32", "ui8", "i1".
constexpr std::string_view name_of(ElementType type) {
  constexpr auto names = std::array<std::string_view, 14>{"invalid", "i1",   "i8",   "i16", "i32", "i64", "ui8",
                                                          "ui16",    "ui32", "ui64", "f16", "f32", "f64", "bf16"};
  auto const at        = static_cast<std::size_t>(type);
  return at < names.size() ? names[at] : "a type that this library does not use";
}

/// The element type of a C++ type: f32 for float, i1 for bool.
template <class T> constexpr ElementType element_type_of() {
  using enum ElementType;
  if constexpr (std::same_as<T, float>) return f32;
  else if constexpr (std::same_as<T, double>) return f64;
  else if constexpr (std::same_as<T, chorale::bf16>) return ElementType::bf16;
  else if constexpr (std::same_as<T, chorale::fp16>) return f16;
  else if constexpr (std::same_as<T, bool>) return pred;
  else {
    static_assert(std::integral<T> && sizeof(T) <= 8,
                  "chorale: PJRT has no element type for this C++ type. Use float, "
                  "double, bf16, fp16, bool or an integer");
    constexpr bool has_sign = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return has_sign ? s8 : u8;
    else if constexpr (sizeof(T) == 2) return has_sign ? s16 : u16;
    else if constexpr (sizeof(T) == 4) return has_sign ? s32 : u32;
    else return has_sign ? s64 : u64;
  }
}

/// Dimensions of a buffer, at most eight, stored in place.
class Dims {
 public:
  static constexpr std::size_t most = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> dims) : Dims{std::span{dims.begin(), dims.size()}} {}
  explicit Dims(std::span<std::int64_t const> dims) : size_{dims.size()} {
    CHORALE_EXPECTS(dims.size() <= most,
                    "a buffer has at most " + std::to_string(most) + " dimensions, got " + std::to_string(dims.size()));
    for (auto const d : dims) CHORALE_EXPECTS(d >= 0, "a dimension of a buffer is " + std::to_string(d));
    std::copy(dims.begin(), dims.end(), at_.begin());
  }

  std::int64_t const* data() const { return at_.data(); }
  std::size_t size() const { return size_; }
  std::int64_t const* begin() const { return at_.data(); }
  std::int64_t const* end() const { return at_.data() + size_; }
  std::int64_t operator[](std::size_t i) const { return at_[i]; }

  friend bool operator==(Dims const& a, Dims const& b) = default;  // what is beyond size() is 0 in both

 private:
  std::array<std::int64_t, most> at_{};
  std::size_t size_ = 0;
};

/// Element type and dimensions of a buffer, row-major on the host.
struct Shape {
  ElementType type = ElementType::f32;
  Dims dims{};

  std::size_t elements() const {
    auto product = std::size_t{1};
    for (auto const d : dims) product *= static_cast<std::size_t>(d);
    return product;
  }
  std::size_t bytes() const { return elements() * bytes_of(type); }

  /// The type in the text of a module, without "tensor<": "2x3xf32", or "f32" without dimensions.
  std::string text() const {
    auto line = std::string{};
    for (auto const d : dims) line += std::to_string(d) + "x";
    return line + std::string{name_of(type)};
  }

  friend bool operator==(Shape const&, Shape const&) = default;
};

/// Shape of a buffer of a C++ type: shape_of<float>({2, 3}).
template <class T> Shape shape_of(Dims const& dims) { return {element_type_of<T>(), dims}; }

}  // namespace chorale::pjrt
