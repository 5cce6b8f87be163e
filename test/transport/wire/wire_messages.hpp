// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/random.hpp>
#include <chorale/transport/wire/frame.hpp>
#include <chorale/transport/wire/handshake.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test {

using Buffer = std::vector<std::byte>;

inline ConstBytes bytes_of(std::string_view s) { return std::as_bytes(Span<char const>{s}); }
inline Buffer buffer(ConstBytes bytes) { return {bytes.begin(), bytes.end()}; }

/// What a test's header of golden numbers says.
inline Buffer from_hexadecimal(std::string_view digits) {
  auto const value = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  auto bytes       = Buffer{};
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(value(digits[i]) * 16 + value(digits[i + 1])));
  return bytes;
}

/// A header with every field drawn at random from all that may be sent.
inline wire::Header some_header(std::uint64_t index) {
  auto const random = Random{3, index};
  auto const below  = [&](std::uint64_t i, std::uint64_t n) { return random.below(i, n); };
  return {.type        = static_cast<wire::FrameType>(1 + below(0, 6)),
          .flags       = static_cast<std::uint8_t>(below(1, 256)),
          .incarnation = random.words(2)[0],
          .from        = static_cast<Rank>(below(3, 1U << 31)),
          .to          = static_cast<Rank>(below(4, 1U << 31)),
          .sequence    = random.bits(5),
          .collective  = static_cast<Collective>(below(6, 8)),
          .op          = static_cast<Op>(below(7, 4)),
          .element     = static_cast<Element>(below(8, 9)),
          .tag         = Tag{random.words(9)[0]},
          .count       = random.bits(10),
          .fingerprint = random.words(11)[0],
          .length      = random.bits(12),
          .payload_crc = random.words(13)[0],
          .root        = static_cast<Rank>(below(14, 256)) - 1};
}

inline wire::HeaderBytes written(wire::Header const& header) {
  auto bytes = wire::HeaderBytes{};
  write(header, bytes);
  return bytes;
}

/// Two identities that fit together: rank 2 connects to rank 0.
inline wire::Identity identity(Rank rank) {
  auto me = wire::Identity{.rank = rank, .world = 4, .role = 1, .incarnation = 5, .channel = 2};
  std::ranges::copy(bytes_of("mnist"), me.job.begin());
  me.plan_hash[0] = std::byte{0x50};
  return me;
}

inline Secret const& secret() {
  static auto const one = Secret{bytes_of("a secret of more than 16 bytes")};
  return one;
}
inline Secret const& other_secret() {
  static auto const one = Secret{bytes_of("a secret of more than 16 bits!")};
  return one;
}

using State = wire::Handshake::State;

/// Moves what one end has to send to the other, at most `most` bytes at once, and returns it.
template <class From, class To> Buffer move_bytes(From& from, To& to, std::size_t most = 256) {
  auto moved = Buffer{};
  while (!from.to_send().empty() && to.state() == State::talking) {
    auto const some = buffer(from.to_send().first(std::min(most, from.to_send().size())));
    from.sent(some.size());
    moved.insert(moved.end(), some.begin(), some.end());
    to.feed(some);
  }
  return moved;
}

/// What each end sent.
struct Said {
  Buffer dialer, acceptor;
};

/// Lets both talk until neither has anything to say. Whoever asks is accepted.
inline Said talk(wire::Initiator& dialer, wire::Responder& acceptor, std::size_t most = 256) {
  auto said = Said{};
  for (int turn = 0; turn < 4; ++turn) {
    auto const there = move_bytes(dialer, acceptor, most);
    said.dialer.insert(said.dialer.end(), there.begin(), there.end());
    if (acceptor.state() == State::asking) acceptor.accept();
    auto const back = move_bytes(acceptor, dialer, most);
    said.acceptor.insert(said.acceptor.end(), back.begin(), back.end());
  }
  return said;
}

}  // namespace chorale::test
