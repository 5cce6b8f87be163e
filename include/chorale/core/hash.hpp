// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

namespace chorale {

/// FNV-1a: a hash of bytes that is equal on every machine and in the compiler. No protection against forgery.
///
/// Word    std::uint32_t or std::uint64_t
/// cost    one multiplication for each byte
/// source  Fowler, Noll, Vo; constants of the Internet-Draft "The FNV Non-Cryptographic Hash Algorithm"
template <std::unsigned_integral Word> class Fnv1a {
 public:
  /// Adds the lowest `bytes` of a number, the lowest one first.
  constexpr Fnv1a& add(std::uint64_t number, int bytes = 8) {
    for (int i = 0; i < bytes; ++i) add_word(number >> 8 * i & 0xff);
    return *this;
  }
  constexpr Fnv1a& add(std::string_view text) {
    for (char const c : text) add_word(static_cast<unsigned char>(c));
    return *this;
  }

  /// Adds a whole word in one step: faster than its bytes, and another number.
  constexpr Fnv1a& add_word(std::uint64_t word) {
    hash_ = (hash_ ^ static_cast<Word>(word)) * prime;
    return *this;
  }

  constexpr Word value() const { return hash_; }

 private:
  static constexpr bool is_long = sizeof(Word) == 8;
  static constexpr Word prime   = static_cast<Word>(is_long ? 0x100'0000'01b3ULL : 0x100'0193ULL);

  Word hash_ = static_cast<Word>(is_long ? 0xcbf2'9ce4'8422'2325ULL : 0x811c'9dc5ULL);
};

}  // namespace chorale
