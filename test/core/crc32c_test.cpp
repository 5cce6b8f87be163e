// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/crc32c.hpp>
#include <chorale/core/random.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;

namespace {

struct Method {
  std::string_view name;
  std::uint32_t (*run)(ConstBytes, std::uint32_t);
};

/// All that this processor can do.
std::vector<Method> methods() {
  auto all = std::vector<Method>{{"crc32c", crc32c}, {"portable", crc32c_portable}};
#if defined(__x86_64__)
  if (has_crc32()) all.push_back({"sse42", crc32c_sse42});
  if (has_vpclmulqdq()) all.push_back({"vpclmulqdq", crc32c_vpclmulqdq});
#endif
  return all;
}

std::vector<std::byte> some_bytes(std::size_t n) {
  auto bytes = std::vector<std::byte>(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(Random{1, 2}.words(i)[0] & 0xFFU);
  return bytes;
}

/// The definition, bit by bit.
std::uint32_t reference(ConstBytes data, std::uint32_t before) {
  auto crc = ~before;
  for (auto const byte : data) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

template <std::size_t n, class Value> constexpr std::array<std::byte, n> filled(Value value) {
  auto bytes = std::array<std::byte, n>{};
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(value(i));
  return bytes;
}

constexpr auto digits  = filled<9>([](std::size_t i) { return '1' + i; });
constexpr auto zeros   = filled<32>([](std::size_t) { return 0; });
constexpr auto ones    = filled<32>([](std::size_t) { return 255; });
constexpr auto upwards = filled<32>([](std::size_t i) { return i; });
constexpr auto down    = filled<32>([](std::size_t i) { return 31 - i; });

static_assert(crc32c_portable({}) == 0 && crc32c_portable(digits) == 0xE3069283U);

}  // namespace

TEST_CASE("CRC-32C has the values of its standard", "[core][golden]") {
  for (auto const& [name, run] : methods()) {  // RFC 3720, appendix B.4, but for the first
    CAPTURE(name);
    CHECK(run({}, 0) == 0);
    CHECK(run(digits, 0) == 0xE3069283U);
    CHECK(run(zeros, 0) == 0x8A9136AAU);
    CHECK(run(ones, 0) == 0x62A8AB43U);
    CHECK(run(upwards, 0) == 0x46DD794EU);
    CHECK(run(down, 0) == 0x113FDB5CU);
  }
}

TEST_CASE("all ways to a checksum agree, for every length, start and checksum before", "[core][unit]") {
  auto const bytes = some_bytes(9'000);
  auto lengths     = std::vector<std::size_t>{};
  for (std::size_t n = 0; n <= 300; ++n) lengths.push_back(n);
  for (std::size_t n : {511U, 512U, 513U, 575U, 576U, 1'023U, 1'024U, 1'500U, 3'071U, 3'072U, 3'264U, 4'100U, 8'191U})
    lengths.push_back(n);
  for (auto const n : lengths)
    for (std::size_t const start : {0U, 1U, 3U, 7U, 8U, 33U, 63U})
      for (auto const before : {0U, 0xFFFFFFFFU, 0x12345678U}) {
        auto const part     = ConstBytes{bytes}.subspan(start, n);
        auto const expected = reference(part, before);
        for (auto const& [name, run] : methods())
          if (run(part, before) != expected) FAIL(name << ": " << n << " bytes from " << start);
      }
  SUCCEED();
}

TEST_CASE("this processor's fastest instructions were among them", "[core][unit]") {
#if defined(__x86_64__)
  CHECK(methods().size() == 2U + has_crc32() + has_vpclmulqdq());
  if (!has_vpclmulqdq()) WARN("not checked here: crc32c_vpclmulqdq(), which this processor does not have");
#else
  CHECK(methods().size() == 2);
#endif
}

TEST_CASE("a message may be checked in pieces", "[core][unit]") {
  auto const bytes = some_bytes(5'000);
  for (auto const& [name, run] : methods()) {
    CAPTURE(name);
    auto const whole = run(bytes, 0);
    for (std::size_t const cut : {0U, 1U, 60U, 512U, 1'000U, 4'999U, 5'000U})
      CHECK(run(ConstBytes{bytes}.subspan(cut), run(ConstBytes{bytes}.first(cut), 0)) == whole);
  }
}

TEST_CASE("every flipped bit changes the checksum", "[core][unit]") {
  auto bytes       = some_bytes(1'100);
  auto const whole = crc32c(bytes);
  auto unseen      = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto const mask = std::byte{1} << bit % 8;
    bytes[bit / 8] ^= mask;
    unseen += crc32c(bytes) == whole;
    bytes[bit / 8] ^= mask;
  }
  CHECK(unseen == 0);
}
