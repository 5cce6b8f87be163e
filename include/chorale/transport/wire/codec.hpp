// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace chorale::wire {

namespace detail {

template <std::size_t n> constexpr std::array<std::byte, n> swapped_on_big_endian(std::array<std::byte, n> number) {
  if constexpr (std::endian::native == std::endian::big) std::ranges::reverse(number);
  return number;
}

}  // namespace detail

/// Writes numbers, bytes and texts one after another; numbers little endian.
///
/// throws  Error when the room is too small, which is a defect of the caller
class Writer {
 public:
  explicit Writer(Bytes out) : out_{out} {}

  std::size_t size() const { return size_; }  // bytes written

  template <std::integral T> void number(T value) {
    auto const bytes = detail::swapped_on_big_endian(std::bit_cast<std::array<std::byte, sizeof(T)>>(value));
    std::memcpy(take(sizeof(T)).data(), bytes.data(), sizeof(T));
  }

  void bytes(ConstBytes data) { std::ranges::copy(data, take(data.size()).begin()); }
  void text(std::string_view s) { bytes(std::as_bytes(Span<char const>{s})); }

 private:
  Bytes take(std::size_t n) {
    if (n > out_.size() - size_) no_room(n);
    size_ += n;
    return out_.subspan(size_ - n, n);
  }
  [[noreturn, gnu::noinline]] void no_room(std::size_t n) const {  // separate, so that take() is inlined
    throw Error{
        "a message of " + std::to_string(size_ + n) + " bytes has room for " + std::to_string(out_.size()) + ".",
        "report this: it is a defect of the library."};
  }

  Bytes out_;
  std::size_t size_ = 0;
};

/// Reads the output of a Writer, from bytes that anyone may have sent.
///
/// keeps   never reads past the end: numbers are then zero, and whole() is false from then on
class Reader {
 public:
  explicit Reader(ConstBytes in) : in_{in} {}

  bool whole() const { return whole_; }  // no byte was missing so far
  bool at_end() const { return whole_ && in_.empty(); }

  template <std::integral T> T number() {
    auto value      = std::array<std::byte, sizeof(T)>{};
    auto const from = take(sizeof(T));
    if (from.size() == sizeof(T)) std::memcpy(value.data(), from.data(), sizeof(T));
    return std::bit_cast<T>(detail::swapped_on_big_endian(value));
  }

  /// Fills `out`, or leaves it unchanged if bytes are missing.
  void bytes(Bytes out) { std::ranges::copy(take(out.size()), out.begin()); }

  /// Reads n characters, made safe by printable().
  std::string text(std::size_t n) {
    auto const bytes = take(n);
    return printable({reinterpret_cast<char const*>(bytes.data()), bytes.size()});
  }

 private:
  ConstBytes take(std::size_t n) {
    whole_          = whole_ && n <= in_.size();
    auto const head = in_.first(whole_ ? n : 0);
    in_             = in_.subspan(head.size());
    return head;
  }

  ConstBytes in_;
  bool whole_ = true;
};

}  // namespace chorale::wire
