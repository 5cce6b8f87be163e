// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale {

/// Writes a message in protobuf's wire format, field by field, as far as event files need it.
///
/// field   its number, 1 to 15; fields of value 0 are written too, which readers accept
/// source  protobuf.dev/programming-guides/encoding
class ProtoWriter {
 public:
  std::string const& bytes() const { return out_; }

  ProtoWriter& varint(unsigned field, std::uint64_t value) {
    key(field, 0);
    plain(value);
    return *this;
  }
  ProtoWriter& number(unsigned field, double value) {
    key(field, 1);
    little_endian(out_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  ProtoWriter& number(unsigned field, float value) {
    key(field, 5);
    little_endian(out_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  ProtoWriter& text(unsigned field, std::string_view value) {
    key(field, 2);
    plain(value.size());
    out_ += value;
    return *this;
  }
  ProtoWriter& message(unsigned field, ProtoWriter const& value) { return text(field, value.out_); }

  /// Appends a "packed" field: numbers without a key for each.
  ProtoWriter& packed(unsigned field, auto const& values) {
    auto content = std::string{};
    for (double const value : values) little_endian(content, std::bit_cast<std::uint64_t>(value));
    return text(field, content);
  }

  /// Appends the bytes of a number, the lowest first.
  template <class T>
  static void little_endian(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
  }

 private:
  void key(unsigned field, unsigned wire) { out_ += static_cast<char>(field << 3 | wire); }
  void plain(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }

  std::string out_;
};

}  // namespace chorale
