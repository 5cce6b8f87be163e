// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/operation.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/control_messages.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// Wire format of messages between processes over a byte stream. docs/55-wire.md documents every byte.
namespace chorale::wire {

/// Version of the wire format. Two sides with one major work together, and use the smaller of their minors: a newer
/// minor includes all of an older one, and leaves every byte where it is.
struct Version {
  std::uint8_t major = 2;
  std::uint8_t minor = 0;

  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
  friend constexpr auto operator<=>(Version, Version) = default;
};

inline constexpr Version version{.major = 2, .minor = 0};
inline constexpr std::size_t header_bytes = 64;

/// Type of a frame. The values are part of the wire format, like the values of Collective, Op and Element.
enum class FrameType : std::uint8_t { data = 1, heartbeat, abort, goodbye, plan, position };

/// The largest root that a header can hold; it stands for all larger ones, too.
inline constexpr Rank last_root = 254;

/// Header of every frame, before its `length` bytes of payload.
struct Header {
  FrameType type            = FrameType::data;
  std::uint8_t flags        = 0;  // free for the transport
  std::uint32_t incarnation = 0;  // of the sender; changes with a restart
  Rank from                 = 0;
  Rank to                   = 0;
  std::uint64_t sequence    = 0;  // of the operation, from 1; see announce()
  Collective collective     = Collective::message;
  Op op                     = Op::sum;
  Element element           = Element::byte;
  Tag tag                   = {};
  std::uint64_t count       = 0;              // elements of the operation
  std::uint32_t fingerprint = 0;              // Operation::fingerprint()
  std::uint64_t length      = 0;              // bytes of payload
  std::uint32_t payload_crc = 0;              // crc32c(payload)
  std::uint8_t minor        = version.minor;  // of the wire version that both ends use
  Rank root                 = no_root;        // of the operation; at most last_root

  friend constexpr bool operator==(Header const&, Header const&) = default;
};

using HeaderBytes = std::array<std::byte, header_bytes>;

namespace detail {

/// First bytes of a frame: not the start of any text, nor of HTTP, TLS or SSH.
inline constexpr auto frame_magic = std::array{std::byte{0xC4}, std::byte{'h'}, std::byte{'r'}, std::byte{0x0D}};
inline constexpr std::size_t checked_bytes = header_bytes - 4;  // the header ends with its checksum

}  // namespace detail

/// Writes a header, with magic, version and its checksum.
inline void write(Header const& header, std::span<std::byte, header_bytes> out) {
  auto to = Writer{out};
  to.bytes(detail::frame_magic);
  to.number(version.major);
  to.number(header.minor);
  to.number(static_cast<std::uint8_t>(header.type));
  to.number(header.flags);
  to.number(header.incarnation);
  to.number(header.from);
  to.number(header.to);
  to.number(static_cast<std::uint32_t>(header.tag));
  to.number(header.sequence);
  to.number(header.count);
  to.number(header.length);
  to.number(static_cast<std::uint8_t>(header.collective));
  to.number(static_cast<std::uint8_t>(header.op));
  to.number(static_cast<std::uint8_t>(header.element));
  to.number(static_cast<std::uint8_t>(header.root + 1));
  to.number(header.fingerprint);
  to.number(header.payload_crc);
  to.number(crc32c(out.first(detail::checked_bytes)));
}

/// Result of parse().
enum class Parse {
  ok,
  need_more,      // valid so far; read until 64 bytes
  not_a_frame,    // another protocol, or a stream out of sync
  other_version,  // Parsed::version is not supported
  corrupt,        // wrong checksum, or an invalid value
  too_large       // more payload than allowed
};

/// Result of parsing the first 64 bytes of a frame.
struct Parsed {
  Parse result;
  Header header   = {};      // ok and too_large only
  Version version = {0, 0};  // as sent; ok, other_version and later ones
};

namespace detail {

inline bool read(Header& header, ConstBytes in) {
  auto from          = Reader{in};
  header.type        = static_cast<FrameType>(from.number<std::uint8_t>());
  header.flags       = from.number<std::uint8_t>();
  header.incarnation = from.number<std::uint32_t>();
  header.from        = from.number<std::int32_t>();
  header.to          = from.number<std::int32_t>();
  header.tag         = Tag{from.number<std::uint32_t>()};
  header.sequence    = from.number<std::uint64_t>();
  header.count       = from.number<std::uint64_t>();
  header.length      = from.number<std::uint64_t>();
  header.collective  = static_cast<Collective>(from.number<std::uint8_t>());
  header.op          = static_cast<Op>(from.number<std::uint8_t>());
  header.element     = static_cast<Element>(from.number<std::uint8_t>());
  header.root        = from.number<std::uint8_t>() - 1;
  header.fingerprint = from.number<std::uint32_t>();
  header.payload_crc = from.number<std::uint32_t>();
  return from.whole() && header.type >= FrameType::data && header.type <= FrameType::position && header.from >= 0 &&
         header.to >= 0 && header.collective <= Collective::barrier && header.op <= Op::product &&
         header.element <= Element::u64;
}

}  // namespace detail

/// Parses a header from the first bytes of a stream, which anyone may have sent.
///
/// max_length  bytes of payload that the caller accepts
/// keeps       never throws, never reads past the end, allocates nothing; ok says nothing about the payload, whose
///             checksum the caller compares: crc32c(payload) == header.payload_crc
/// order       magic, version, checksum, values, length: the first that is wrong is the result
inline Parsed parse(ConstBytes in, std::uint64_t max_length) {
  constexpr auto after_version = detail::frame_magic.size() + 2;
  for (std::size_t i = 0; i < detail::frame_magic.size() && i < in.size(); ++i)
    if (in[i] != detail::frame_magic[i]) return {Parse::not_a_frame};
  if (in.size() < after_version) return {Parse::need_more};
  auto parsed          = Parsed{Parse::ok};
  auto from            = Reader{in.subspan(detail::frame_magic.size())};
  parsed.version.major = from.number<std::uint8_t>();
  parsed.version.minor = from.number<std::uint8_t>();
  parsed.header.minor  = parsed.version.minor;
  if (parsed.version.major != version.major || parsed.version.minor > version.minor)
    parsed.result = Parse::other_version;
  else if (in.size() < header_bytes) parsed.result = Parse::need_more;
  else if (crc32c(in.first(detail::checked_bytes)) != Reader{in.subspan(detail::checked_bytes)}.number<std::uint32_t>())
    parsed.result = Parse::corrupt;
  else if (!detail::read(parsed.header, in.first(detail::checked_bytes).subspan(after_version)))
    parsed = {Parse::corrupt, {}, parsed.version};
  else if (parsed.header.length > max_length) parsed.result = Parse::too_large;
  return parsed;
}

}  // namespace chorale::wire
