// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace chorale {

namespace detail {

/// The polynomial x^32 + x^28 + x^27 + ..., without x^32. Reflected, like all values here: bit 0 belongs to x^31.
inline constexpr std::uint32_t crc32c_polynomial = 0x82F63B78U;

/// x^n modulo the polynomial.
constexpr std::uint32_t power_of_x(unsigned n) {
  auto power = std::uint32_t{0x8000'0000U};  // x^0
  for (unsigned i = 0; i < n; ++i) power = power >> 1 ^ (power & 1U ? crc32c_polynomial : 0U);
  return power;
}

}  // namespace detail

#if defined(__x86_64__)

/// True if this processor has the instructions of crc32c_sse42().
inline bool has_crc32() { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"); }

/// True if this processor has the instructions of crc32c_vpclmulqdq(), and the system saves their registers.
inline bool has_vpclmulqdq() {
  return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") && has_crc32();
}

namespace detail {

// Vectors and instructions as both compilers have them without <immintrin.h>, which takes half a second to read.
using Bits128 [[gnu::vector_size(16)]] = long long;
using Bits512 [[gnu::vector_size(64)]] = long long;

[[gnu::target("sse4.2")]] inline std::uint64_t crc32_of(std::uint64_t crc, std::uint64_t next) {
  return __builtin_ia32_crc32di(crc, next);
}

inline constexpr std::size_t worth_folding = 512;  // bytes; below, three streams are faster

inline std::uint64_t eight_bytes(std::byte const* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// Moves crc(A) past the bytes of B: crc(A, B) of a message in two parts is the result xor crc(B), started from 0.
///
/// past    x^(8 · bytes of B - 33): the product of two reflected values is short of one bit, and crc32 adds 32
[[gnu::target("sse4.2,pclmul")]] inline std::uint32_t moved(std::uint32_t crc, std::uint32_t past) {
  auto const product = __builtin_ia32_pclmulqdq128(Bits128{crc, 0}, Bits128{past, 0}, 0);
  return static_cast<std::uint32_t>(crc32_of(0, static_cast<std::uint64_t>(product[0])));
}

/// Consumes 3 · bytes of `data` per iteration, as three streams: the instruction takes three cycles, and one can start
/// in each. `crc` is not inverted, here and below.
template <std::size_t bytes>
[[gnu::target("sse4.2,pclmul")]] inline std::uint32_t three_streams(ConstBytes& data, std::uint32_t crc) {
  constexpr auto past_one = power_of_x(8 * bytes - 33), past_two = power_of_x(16 * bytes - 33);
  for (; data.size() >= 3 * bytes; data = data.subspan(3 * bytes)) {
    std::uint64_t a = crc, b = 0, c = 0;
    for (std::byte const *at = data.data(), *end = at + bytes; at != end; at += 8) {
      a = crc32_of(a, eight_bytes(at));
      b = crc32_of(b, eight_bytes(at + bytes));
      c = crc32_of(c, eight_bytes(at + 2 * bytes));
    }
    crc = moved(static_cast<std::uint32_t>(a), past_two) ^ moved(static_cast<std::uint32_t>(b), past_one) ^
          static_cast<std::uint32_t>(c);
  }
  return crc;
}

}  // namespace detail

/// crc32c() with the instruction crc32.
///
/// keeps   to be called only where has_crc32()
/// source  Gopal et al., "Fast CRC computation for iSCSI polynomial using CRC32 instruction", Intel, 2011
[[gnu::target("sse4.2,pclmul")]] inline std::uint32_t crc32c_sse42(ConstBytes data, std::uint32_t before = 0) {
  std::uint64_t crc = detail::three_streams<1024>(data, ~before);
  crc               = detail::three_streams<64>(data, static_cast<std::uint32_t>(crc));
  for (; data.size() >= 8; data = data.subspan(8)) crc = detail::crc32_of(crc, detail::eight_bytes(data.data()));
  auto last = static_cast<std::uint32_t>(crc);
  for (auto const byte : data) last = __builtin_ia32_crc32qi(last, std::to_integer<std::uint8_t>(byte));
  return ~last;
}

namespace detail {

/// Factors that move 128 bits past `bits` more: for the half that is first in memory, which has the higher powers, and
/// for the second. The product of two reflected values is short of one bit.
constexpr std::array<std::int64_t, 2> past(unsigned bits) {
  auto const upper = [](std::uint32_t x) { return static_cast<std::int64_t>(std::uint64_t{x} << 32); };
  return {upper(power_of_x(bits + 63)), upper(power_of_x(bits - 1))};
}

/// Products of the lower, or of the upper, halves of four 128-bit values with the same halves of `by`.
[[gnu::target("avx512f,vpclmulqdq")]] inline Bits512 lower_products(Bits512 x, Bits512 by) {
  Bits512 product;
  asm("vpclmulqdq $0x00, %2, %1, %0" : "=v"(product) : "v"(x), "v"(by));
  return product;
}
[[gnu::target("avx512f,vpclmulqdq")]] inline Bits512 upper_products(Bits512 x, Bits512 by) {
  Bits512 product;
  asm("vpclmulqdq $0x11, %2, %1, %0" : "=v"(product) : "v"(x), "v"(by));
  return product;
}

/// Moves four values of 128 bits past `bits`, and adds `next`, the data at the new place.
template <unsigned bits> [[gnu::target("avx512f,vpclmulqdq")]] inline Bits512 folded(Bits512 x, Bits512 next) {
  constexpr auto k = past(bits);
  auto const by    = Bits512{k[0], k[1], k[0], k[1], k[0], k[1], k[0], k[1]};
  return lower_products(x, by) ^ upper_products(x, by) ^ next;
}

/// Moves one value of 128 bits past `bits`, and adds `next`, the data at the new place.
template <unsigned bits> [[gnu::target("sse4.2,pclmul")]] inline Bits128 folded(Bits128 x, Bits128 next) {
  constexpr auto k = past(bits);
  auto const by    = Bits128{k[0], k[1]};
  return __builtin_ia32_pclmulqdq128(x, by, 0x00) ^ __builtin_ia32_pclmulqdq128(x, by, 0x11) ^ next;
}

/// Checksum of 64 bytes, started from 0.
[[gnu::target("avx512f,sse4.2,pclmul")]] inline std::uint32_t checksum_of(Bits512 x) {
  auto const part = [&](int i) { return Bits128{x[2 * i], x[2 * i + 1]}; };
  auto const sum  = folded<384>(part(0), folded<256>(part(1), folded<128>(part(2), part(3))));
  auto const crc  = crc32_of(0, static_cast<std::uint64_t>(sum[0]));
  return static_cast<std::uint32_t>(crc32_of(crc, static_cast<std::uint64_t>(sum[1])));
}

[[gnu::target("avx512f")]] inline Bits512 bits_at(std::byte const* at) {
  Bits512 x;
  std::memcpy(&x, at, sizeof x);
  return x;
}

}  // namespace detail

/// crc32c() with the instruction vpclmulqdq: 512 bytes per iteration, in eight registers.
///
/// keeps   to be called only where has_vpclmulqdq()
/// source  Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ instruction", Intel, 2009
[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] inline std::uint32_t crc32c_vpclmulqdq(ConstBytes data,
                                                                                           std::uint32_t before = 0) {
  constexpr std::size_t wide = sizeof(detail::Bits512), turn = 8 * wide;
  if (data.size() < turn) return crc32c_sse42(data, before);

  detail::Bits512 x[8];  // stays in registers
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i) x[i] = detail::bits_at(data.data() + i * wide);
  x[0] ^= detail::Bits512{static_cast<long long>(~before)};
  for (data = data.subspan(turn); data.size() >= turn; data = data.subspan(turn)) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) x[i] = detail::folded<8 * turn>(x[i], detail::bits_at(data.data() + i * wide));
  }

  for (std::size_t i = 0; i < 4; ++i) x[i] = detail::folded<8 * 4 * wide>(x[i], x[i + 4]);
  for (std::size_t i = 0; i < 2; ++i) x[i] = detail::folded<8 * 2 * wide>(x[i], x[i + 2]);
  auto sum = detail::folded<8 * wide>(x[0], x[1]);
  for (; data.size() >= wide; data = data.subspan(wide))
    sum = detail::folded<8 * wide>(sum, detail::bits_at(data.data()));
  return crc32c_sse42(data, ~detail::checksum_of(sum));
}

#endif

namespace detail {

/// Table of contributions to a checksum: row k, entry b is for byte b when k more bytes have followed it.
inline constexpr auto crc32c_rows = [] {
  auto rows = std::array<std::array<std::uint32_t, 256>, 8>{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1U ? crc32c_polynomial : 0U);
    rows[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      rows[k][byte] = rows[k - 1][byte] >> 8 ^ rows[0][rows[k - 1][byte] & 0xFFU];
  return rows;
}();

}  // namespace detail

/// crc32c() on any processor, and at compile time: eight bytes per iteration, with tables.
///
/// source  Kounavis & Berry, "A systematic approach to building high performance software-based CRC generators", 2005
constexpr std::uint32_t crc32c_portable(ConstBytes data, std::uint32_t before = 0) {
  auto const& rows = detail::crc32c_rows;
  auto crc         = ~before;
  auto const at    = [&](std::size_t i) { return std::to_integer<std::uint32_t>(data[i]); };
  for (; data.size() >= 8; data = data.subspan(8)) {
    crc ^= at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
    crc = rows[7][crc & 0xFFU] ^ rows[6][crc >> 8 & 0xFFU] ^ rows[5][crc >> 16 & 0xFFU] ^ rows[4][crc >> 24] ^
          rows[3][at(4)] ^ rows[2][at(5)] ^ rows[1][at(6)] ^ rows[0][at(7)];
  }
  for (auto const byte : data) crc = crc >> 8 ^ rows[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
  return ~crc;
}

/// CRC-32C, the checksum of every frame and of every TFRecord, with the fastest instructions of this processor.
///
/// before  the checksum of what came before `data`, so that a message may be checked in pieces
/// keeps   every single flipped bit, every two within 2^31 bits, and every burst of up to 32 bits change it; of other
///         damage one in 2^32 is not detected. It does not protect from intentional changes; Sealed frames do
/// source  Castagnoli, Bräuer & Herrmann, IEEE Transactions on Communications 41 (6), 1993; RFC 3720, appendix B.4
inline std::uint32_t crc32c(ConstBytes data, std::uint32_t before = 0) {
#if defined(__x86_64__)
  if (data.size() >= detail::worth_folding && has_vpclmulqdq()) return crc32c_vpclmulqdq(data, before);
  if (has_crc32()) return crc32c_sse42(data, before);
#endif
  return crc32c_portable(data, before);
}

}  // namespace chorale
