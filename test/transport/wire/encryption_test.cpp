// SPDX-License-Identifier: Apache-2.0
#include "test/transport/wire/wire_golden.hpp"
#include "test/transport/wire/wire_messages.hpp"

#include <chorale/transport/wire/encryption.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace chorale::wire;

namespace {

static_assert(std::is_empty_v<Plain> && Plain::tag_bytes == 0);

Key some_key() {
  auto key = Key{};
  std::ranges::copy(from_hexadecimal(golden::session_key), key.begin());
  return key;
}

/// A frame on its way.
struct Frame {
  HeaderBytes header{};
  Buffer payload;
  std::array<std::byte, Sealed::tag_bytes> tag{};
};

Buffer text_of(std::size_t n) {
  auto bytes = Buffer(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i % 64);
  return bytes;
}

Frame sealed(Sealed& from, ConstBytes payload) {
  auto frame   = Frame{written(some_header(payload.size())), Buffer(payload.size()), {}};
  auto const s = from.seal(frame.header, payload, frame.payload, frame.tag);
  CHECK((s.data() == frame.payload.data() && s.size() == payload.size()));
  return frame;
}

bool opens(Sealed& to, Frame& frame) { return to.open(frame.header, frame.payload, frame.tag); }

}  // namespace

TEST_CASE("what one end seals the other opens, in both directions and any size", "[transport][sealed]") {
  auto dialer   = Sealed{some_key(), End::dialer};
  auto acceptor = Sealed{some_key(), End::acceptor};
  for (std::size_t const n : {0U, 1U, 15U, 16U, 17U, 1'000U, 300'000U})
    for (auto const& [from, to] : {std::pair{&dialer, &acceptor}, std::pair{&acceptor, &dialer}}) {
      auto frame = sealed(*from, text_of(n));
      CHECK((n < 16 || frame.payload != text_of(n)));
      CHECK(opens(*to, frame));
      CHECK(frame.payload == text_of(n));
    }
}

TEST_CASE("a sealed frame has the bytes that the page about the wire says", "[transport][golden]") {
  auto dialer = Sealed{some_key(), End::dialer};
  sealed(dialer, text_of(5));
  auto payload = Buffer{};
  for (int i = 0; i < 3; ++i) {
    auto const part = text_of(64);
    payload.insert(payload.end(), part.begin(), part.end());
  }
  auto frame = Frame{{}, Buffer(payload.size()), {}};
  std::ranges::copy(from_hexadecimal(golden::header), frame.header.begin());
  dialer.seal(frame.header, payload, frame.payload, frame.tag);
  auto sent = frame.payload;
  sent.insert(sent.end(), frame.tag.begin(), frame.tag.end());
  CHECK(sent == from_hexadecimal(golden::sealed));
}

TEST_CASE("a flipped bit in header, payload or tag is found, and what came is wiped", "[transport][sealed]") {
  auto sender     = Sealed{some_key(), End::dialer};
  auto const good = sealed(sender, text_of(40));
  for (std::size_t bit = 0; bit < 8 * (header_bytes + 40 + Sealed::tag_bytes); ++bit) {
    auto frame = good;
    auto at    = bit / 8;
    auto& byte = at < header_bytes        ? frame.header[at]
                 : at < header_bytes + 40 ? frame.payload[at - header_bytes]
                                          : frame.tag[at - header_bytes - 40];
    byte ^= std::byte{1} << bit % 8;
    auto receiver = Sealed{some_key(), End::acceptor};
    if (opens(receiver, frame) || frame.payload != Buffer(40)) FAIL("bit " << bit);
    auto again = good;
    if (opens(receiver, again)) FAIL("it went on after bit " << bit);
  }
  auto receiver = Sealed{some_key(), End::acceptor};
  auto frame    = good;
  CHECK(opens(receiver, frame));
}

TEST_CASE("a frame that comes twice, too early, too short or back to its sender does not open", "[transport][sealed]") {
  auto sender   = Sealed{some_key(), End::dialer};
  auto receiver = Sealed{some_key(), End::acceptor};
  auto first    = sealed(sender, text_of(40));
  auto second   = sealed(sender, text_of(40));
  CHECK(first.payload != second.payload);  // another number, another stream
  SECTION("twice") {
    auto again = first;
    CHECK(opens(receiver, first));
    CHECK_FALSE(opens(receiver, again));
  }
  SECTION("too early: one was dropped, or two were swapped") { CHECK_FALSE(opens(receiver, second)); }
  SECTION("too short") {
    first.payload.resize(39);
    CHECK_FALSE(opens(receiver, first));
  }
  SECTION("back to its sender") { CHECK_FALSE(opens(sender, first)); }
  SECTION("of another connection") {
    auto key = some_key();
    key[0] ^= std::byte{1};
    auto stranger = Sealed{key, End::acceptor};
    CHECK_FALSE(opens(stranger, first));
  }
}

TEST_CASE("the key changes after so many bytes, on both ends at once", "[transport][sealed]") {
  auto few     = Sealed{some_key(), End::dialer, 200};  // two frames of 64 + 40 bytes
  auto many    = Sealed{some_key(), End::dialer};
  auto to_few  = Sealed{some_key(), End::acceptor, 200};
  auto to_many = Sealed{some_key(), End::acceptor};
  for (int i = 0; i < 20; ++i) {
    auto frame = sealed(few, text_of(40)), other = sealed(many, text_of(40));
    CHECK((frame.payload == other.payload) == (i < 2));
    CHECK(opens(to_few, frame));
    CHECK(opens(to_many, other));
    CHECK(frame.payload == text_of(40));
  }
}

TEST_CASE("a seal may be moved with its connection", "[transport][sealed]") {
  auto sender = Sealed{some_key(), End::dialer};
  sealed(sender, text_of(3));
  auto moved    = std::move(sender);
  auto receiver = Sealed{some_key(), End::acceptor};
  auto first    = sealed(moved, text_of(9));
  CHECK_FALSE(opens(receiver, first));  // it is the second one
}

TEST_CASE("too little room for a sealed frame is the caller's mistake", "[transport][sealed]") {
  auto sender = Sealed{some_key(), End::dialer};
  auto frame  = Frame{};
  CHECK_THROWS_WITH(sender.seal(frame.header, text_of(10), frame.payload, frame.tag), Catch::Contains("0 of 10 bytes"));
}

TEST_CASE("without protection the payload goes as it is, and from where it is", "[transport][sealed]") {
  auto const plain   = Plain{};
  auto const payload = text_of(10);
  auto const sent    = plain.seal({}, payload, {}, std::span<std::byte, 0>{});
  CHECK((sent.data() == payload.data() && sent.size() == payload.size()));
  CHECK(plain.open({}, {}, std::span<std::byte const, 0>{}));
}
