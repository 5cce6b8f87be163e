// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c_x86.hpp>
#include <chorale/core/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace chorale {

namespace detail {

/// Table of contributions to a checksum: row k, entry b is that of byte b when k more bytes have followed it.
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
