// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The part of protobuf's wire format that small messages need: no schema, no groups.
///
/// source  protobuf.dev/programming-guides/encoding
namespace chorale::data::proto {

/// Thrown for bytes that are no message. A caller that knows the message rethrows it as a BadFile that names it.
struct Malformed : std::runtime_error {
  Malformed(std::uint64_t at, std::string const& what_is_wrong)
      : runtime_error{"byte " + std::to_string(at) + ": " + what_is_wrong} {}
};

enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

inline char const* name_of(Wire wire) {
  switch (wire) {
    case Wire::varint: return "a varint";
    case Wire::fixed64: return "64 bits";
    case Wire::bytes: return "a length and bytes";
    case Wire::fixed32: return "32 bits";
  }
  return "unknown";
}

/// A part of a message, and its offset in the whole.
struct Part {
  ConstBytes bytes{};
  std::uint64_t offset = 0;

  std::string_view text() const { return {reinterpret_cast<char const*>(bytes.data()), bytes.size()}; }
};

/// One field of a message.
struct Field {
  std::uint32_t number = 0;
  Wire wire            = Wire::varint;
  std::uint64_t value  = 0;  // unless wire is bytes
  Part part{};               // if wire is bytes
  std::uint64_t offset = 0;  // where the field begins

  /// Returns the field. Throws Malformed unless it is of this kind.
  Field const& expect(Wire wanted, char const* what) const {
    if (wire != wanted)
      throw Malformed{offset, std::string{what} + " needs " + name_of(wanted) + ", but the field has " + name_of(wire)};
    return *this;
  }
};

/// Reads a message field by field, from untrusted bytes.
///
/// keeps   never reads beyond the message; every field takes at least one byte
/// throws  Malformed
class Reader {
 public:
  explicit Reader(Part message) : left_{message.bytes}, offset_{message.offset} {}

  bool at_end() const { return left_.empty(); }

  /// Reads the next field. False at the end of the message.
  bool next(Field& out) {
    if (left_.empty()) return false;
    out             = Field{.offset = offset_};
    auto const tag  = varint();
    auto const wire = tag & 7;
    if (tag >> 3 == 0 || tag >> 32 != 0)
      throw Malformed{out.offset, "field number " + std::to_string(tag >> 3) + ", but they go from 1 to 536870911"};
    if (wire == 3 || wire == 4 || wire > 5)
      throw Malformed{out.offset, "wire type " + std::to_string(wire) + ", but 0, 1, 2 and 5 are read"};
    out.number = static_cast<std::uint32_t>(tag >> 3);
    out.wire   = static_cast<Wire>(wire);
    switch (out.wire) {
      case Wire::varint: out.value = varint(); break;
      case Wire::fixed64: out.value = fixed<8>(); break;
      case Wire::fixed32: out.value = fixed<4>(); break;
      case Wire::bytes: out.part = bytes(varint()); break;
    }
    return true;
  }

  std::uint64_t varint() {
    auto const begin = offset_;
    auto value       = std::uint64_t{0};
    for (unsigned shift = 0; shift < 64; shift += 7) {
      auto const byte = std::to_integer<std::uint64_t>(take(1)[0]);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw Malformed{begin, "a varint of more than 64 bits"};
  }

  template <unsigned bytes> std::uint64_t fixed() {
    auto const from = take(bytes);
    auto value      = std::uint64_t{0};
    for (auto i = bytes; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
    return value;
  }

 private:
  Part bytes(std::uint64_t n) {
    auto const begin = offset_;
    return {take(n), begin};
  }
  ConstBytes take(std::uint64_t n) {
    if (n > left_.size())
      throw Malformed{
          offset_, std::to_string(n) + " bytes are needed, but the message ends after " + std::to_string(left_.size())};
    auto const head = left_.first(static_cast<std::size_t>(n));
    left_           = left_.subspan(head.size());
    offset_ += n;
    return head;
  }

  ConstBytes left_;
  std::uint64_t offset_;
};

/// Appends fields to a message.
class Writer {
 public:
  std::vector<std::byte> const& bytes() const { return out_; }
  std::vector<std::byte> take() { return std::move(out_); }

  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<std::byte>(value | 0x80));
    out_.push_back(static_cast<std::byte>(value));
  }
  void fixed32(std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) out_.push_back(static_cast<std::byte>(value >> shift & 0xFF));
  }
  void tag(std::uint32_t number, Wire wire) { varint(std::uint64_t{number} << 3 | static_cast<unsigned>(wire)); }

  /// Appends a field of bytes, a text or another message.
  void field(std::uint32_t number, ConstBytes content) {
    tag(number, Wire::bytes);
    varint(content.size());
    out_.insert(out_.end(), content.begin(), content.end());
  }
  void field(std::uint32_t number, std::string_view text) { field(number, std::as_bytes(Span<char const>{text})); }
  void field(std::uint32_t number, Writer const& message) { field(number, ConstBytes{message.out_}); }

 private:
  std::vector<std::byte> out_;
};

}  // namespace chorale::data::proto
