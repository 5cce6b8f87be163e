// SPDX-License-Identifier: Apache-2.0
#include "test/transport/wire/wire_golden.hpp"
#include "test/transport/wire/wire_messages.hpp"

#include <chorale/transport/wire/crypto.hpp>
#include <chorale/transport/wire/frame.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace chorale::wire;

namespace {

constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();

/// A header with other bytes at `offset`, and a checksum that fits: from someone who knows the format.
HeaderBytes forged(std::size_t offset, ConstBytes other) {
  auto bytes = written(Header{});
  std::ranges::copy(other, bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  Writer{Bytes{bytes}.last(4)}.number(crc32c(ConstBytes{bytes}.first(60)));
  return bytes;
}

Parse result_of(ConstBytes bytes) { return parse(bytes, no_limit).result; }

Loss some_loss() {
  return {.fault     = Fault::peer_stalled,
          .rank      = 3,
          .host      = "10.0.0.4:4400",
          .operation = "all_reduce (sum) of 400 float",
          .sequence  = 7,
          .step      = 812,
          .reason    = "it closed the connection"};
}

template <class Payload> Buffer written_payload(Payload const& payload) {
  auto room = std::array<std::byte, Payload::max_bytes>{};
  return buffer(ConstBytes{room}.first(payload.write(room)));
}

bool same(Loss const& a, Loss const& b) {
  return a.fault == b.fault && a.rank == b.rank && a.host == b.host && a.operation == b.operation &&
         a.sequence == b.sequence && a.step == b.step && a.reason == b.reason;
}

}  // namespace

TEST_CASE("what is written is what is parsed, for any header", "[transport][frame]") {
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    auto const header = some_header(i);
    auto const parsed = parse(written(header), no_limit);
    if (parsed.result != Parse::ok || parsed.header != header || parsed.version != version) FAIL("header " << i);
  }
  SUCCEED();
}

TEST_CASE("a header has the bytes that the page about the wire says", "[transport][golden]") {
  auto payload = Buffer{};
  for (unsigned i = 0; i < 192; ++i) payload.push_back(static_cast<std::byte>(i % 64));
  auto const header = Header{.flags       = 0x80,
                             .incarnation = 5,
                             .from        = 2,
                             .to          = 1,
                             .sequence    = 7,
                             .collective  = Collective::all_reduce,
                             .op          = Op::min,
                             .element     = Element::f64,
                             .tag         = Tag{9},
                             .count       = 400,
                             .fingerprint = 0xDEADBEEF,
                             .length      = 192,
                             .payload_crc = crc32c(payload),
                             .root        = 3};
  CHECK(buffer(written(header)) == from_hexadecimal(golden::header));
}

TEST_CASE("every prefix of a header needs more", "[transport][frame]") {
  auto const bytes = written(some_header(1));
  for (std::size_t n = 0; n < header_bytes; ++n) CHECK(result_of(ConstBytes{bytes}.first(n)) == Parse::need_more);
  auto longer = buffer(bytes);
  longer.resize(100);
  CHECK(result_of(longer) == Parse::ok);  // what follows is not looked at
}

TEST_CASE("every flipped bit of a header is found, and every two", "[transport][frame]") {
  auto bytes      = written(some_header(2));
  auto const flip = [&](std::size_t bit) { bytes[bit / 8] ^= std::byte{1} << bit % 8; };
  for (std::size_t a = 0; a < 8 * header_bytes; ++a) {
    flip(a);
    auto const expected = a < 32 ? Parse::not_a_frame : a < 48 ? Parse::other_version : Parse::corrupt;
    CHECK(result_of(bytes) == expected);
    for (std::size_t b = a + 1; b < 8 * header_bytes; ++b) {
      flip(b);
      if (result_of(bytes) == Parse::ok) FAIL("bits " << a << " and " << b);
      flip(b);
    }
    flip(a);
  }
  CHECK(result_of(bytes) == Parse::ok);
}

TEST_CASE("a length above what the caller takes is too large, whatever it says", "[transport][frame]") {
  auto header = Header{};
  for (auto const length : {std::uint64_t{1} << 20, std::uint64_t{1} << 31, std::uint64_t{1} << 32,
                            std::uint64_t{1} << 63, no_limit - header_bytes, no_limit}) {
    header.length = length;
    CHECK(parse(written(header), (1U << 20) - 1).result == Parse::too_large);
    CHECK(parse(written(header), length).result == Parse::ok);
  }
  header.length = 0;
  CHECK(parse(written(header), 0).result == Parse::ok);
}

TEST_CASE("a version is told before the rest is looked at, because another may be laid out in another way",
          "[transport][frame]") {
  auto bytes = written(Header{});
  Writer{Bytes{bytes}.subspan(4)}.number(std::uint16_t{0x0103});
  for (auto const n : {6U, 7U, 63U, 64U}) {
    auto const parsed = parse(ConstBytes{bytes}.first(n), no_limit);
    CHECK(parsed.result == Parse::other_version);
    CHECK(parsed.version == Version{3, 1});
  }
}

TEST_CASE("a frame of a newer minor version is another version: the sender should have spoken ours",
          "[transport][frame]") {
  auto header       = Header{};
  header.minor      = version.minor + 1;
  auto const parsed = parse(written(header), no_limit);
  CHECK(parsed.result == Parse::other_version);
  CHECK(parsed.version == Version{version.major, static_cast<std::uint8_t>(version.minor + 1)});
}

TEST_CASE("values that mean nothing are corrupt, even with a checksum that fits", "[transport][frame]") {
  auto const byte_at = [](std::size_t offset, unsigned value) {
    return result_of(forged(offset, std::array{static_cast<std::byte>(value)}));
  };
  CHECK(byte_at(7, 255) == Parse::ok);  // flags: all may be used
  for (auto const type : {0U, 7U, 255U}) CHECK(byte_at(6, type) == Parse::corrupt);
  for (auto const rank_end : {15U, 19U}) CHECK(byte_at(rank_end, 0x80) == Parse::corrupt);  // negative ranks
  CHECK(byte_at(48, 7) == Parse::ok);
  CHECK(byte_at(48, 8) == Parse::corrupt);  // a collective
  CHECK(byte_at(49, 4) == Parse::corrupt);  // an operation
  CHECK(byte_at(50, 9) == Parse::corrupt);  // an element
  CHECK(byte_at(51, 255) == Parse::ok);     // a root: all may be used
}

TEST_CASE("other protocols are no frames, from their first byte", "[transport][frame]") {
  for (auto const* text : {"GET / HTTP/1.1\r\n", "\x16\x03\x01\x02", "SSH-2.0-OpenSSH_9.2", "\r\n", "chorale"})
    CHECK(result_of(bytes_of(text)) == Parse::not_a_frame);
  for (auto const value : {0x00, 0xFF})
    CHECK(result_of(Buffer(1, static_cast<std::byte>(value))) == Parse::not_a_frame);
}

TEST_CASE("an abort says the first cause of a loss, byte by byte", "[transport][golden]") {
  auto const bytes = written_payload(AbortPayload{some_loss()});
  CHECK(bytes == from_hexadecimal(golden::abort));
  auto const parsed = AbortPayload::parse(bytes);
  REQUIRE(parsed);
  CHECK(same(parsed->loss, some_loss()));
}

TEST_CASE("every fault, the rank that is nobody's and empty texts survive an abort", "[transport][frame]") {
  for (int code = 0; code <= static_cast<int>(Fault::numeric_fault); ++code) {
    auto const loss   = Loss{.fault = static_cast<Fault>(code), .rank = code - 1};
    auto const parsed = AbortPayload::parse(written_payload(AbortPayload{loss}));
    REQUIRE(parsed);
    CHECK(same(parsed->loss, loss));
  }
}

TEST_CASE("texts that are too long are cut, and say so", "[transport][frame]") {
  auto loss = some_loss();
  loss.host = loss.operation = loss.reason = std::string(1'000, 'x');
  auto const bytes                         = written_payload(AbortPayload{loss});
  CHECK(bytes.size() == AbortPayload::max_bytes);
  auto const parsed = AbortPayload::parse(bytes);
  REQUIRE(parsed);
  CHECK(parsed->loss.host == std::string(60, 'x') + "...");
  CHECK(parsed->loss.operation == std::string(124, 'x') + "...");
  CHECK(parsed->loss.reason == std::string(252, 'x') + "...");
}

TEST_CASE("a peer's texts cannot move the cursor", "[transport][frame]") {
  auto loss = some_loss();
  loss.host =
      "a\x1B[2Jb\r\nc\x9B"
      "d\x7F";
  CHECK(AbortPayload::parse(written_payload(AbortPayload{loss}))->loss.host == "a?[2Jb??c?d?");
}

TEST_CASE("an abort that is too short, too long or of an unknown fault is none", "[transport][frame]") {
  auto bytes = written_payload(AbortPayload{some_loss()});
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(AbortPayload::parse(ConstBytes{bytes}.first(n)));
  auto const changed = [&](std::size_t at, unsigned value) {
    auto other = bytes;
    other[at]  = static_cast<std::byte>(value);
    return AbortPayload::parse(other);
  };
  CHECK_FALSE(changed(0, 15));  // the first code that is no fault
  for (std::size_t length = 1; length <= 3; ++length) CHECK_FALSE(changed(length, 255));
  CHECK_FALSE(changed(7, 0x80));  // rank below -1
  bytes.push_back(std::byte{});
  CHECK_FALSE(AbortPayload::parse(bytes));
}

TEST_CASE("a heartbeat says how far its rank is, byte by byte", "[transport][golden]") {
  auto const beat  = HeartbeatPayload{.sequence = 7, .step = 812, .bytes_moved = 123'456'789, .host = "host-b"};
  auto const bytes = written_payload(beat);
  CHECK(bytes == from_hexadecimal(golden::heartbeat));
  auto const parsed = HeartbeatPayload::parse(bytes);
  REQUIRE(parsed);
  CHECK((parsed->sequence == 7 && parsed->step == 812 && parsed->bytes_moved == 123'456'789));
  CHECK(parsed->host == "host-b");
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(HeartbeatPayload::parse(ConstBytes{bytes}.first(n)));
  auto longer = bytes;
  longer.push_back(std::byte{});
  CHECK_FALSE(HeartbeatPayload::parse(longer));
  longer.resize(25 + 64);
  longer[24] = std::byte{64};
  CHECK_FALSE(HeartbeatPayload::parse(longer));  // a host of 64 bytes
  CHECK(written_payload(HeartbeatPayload{.host = std::string(99, 'x')}).size() == HeartbeatPayload::max_bytes);
}

TEST_CASE("a plan survives its frame, and what is no plan does not", "[transport][plan]") {
  auto const plan = PlanPayload{{"dense/kernel f32[784,512]", "dense/bias f32[512]"}};
  CHECK(PlanPayload::parse(plan.write())->lines == plan.lines);
  CHECK(PlanPayload::parse({})->lines.empty());
  CHECK(PlanPayload::parse(bytes_of("a\x1B[0m b\n"))->lines[0] == "a?[0m b");
  for (auto const* text : {"no end", "an empty line\n\nafter which another\n", "\n"})
    CHECK_FALSE(PlanPayload::parse(bytes_of(text)));
  auto const many = PlanPayload{std::vector<std::string>(10'000, "conv2d/kernel f32[3,3,32,64]")};
  CHECK(many.write().size() == max_plan_bytes / 29 * 29);  // whole lines only
  CHECK(PlanPayload::parse(many.write())->lines.size() == max_plan_bytes / 29);
  CHECK_FALSE(PlanPayload::parse(Buffer(max_plan_bytes + 1, std::byte{'\n'})));
}

TEST_CASE("the first line in which two plans differ is named, theirs first", "[transport][plan]") {
  using Plan      = std::vector<std::string>;
  auto const ours = Plan{"dense/kernel f32[784,512]", "dense/bias f32[512]"};
  CHECK(first_difference(ours, Plan{"dense/kernel f32[784,256]", "dense/bias f32[256]"}) ==
        "dense/kernel f32[784,256] vs f32[784,512]");
  CHECK(first_difference(ours, Plan{ours[0], "dense/bias_2 f32[512]"}) ==
        "dense/bias_2 f32[512] vs dense/bias f32[512]");
  CHECK(first_difference(ours, Plan{ours[0]}) == "nothing vs dense/bias f32[512]");
  CHECK(first_difference(Plan{}, ours) == "dense/kernel f32[784,512] vs nothing");
  CHECK(first_difference(Plan{"a"}, Plan{"ab"}) == "ab vs a");
  CHECK(first_difference(Plan{"layer 2 ReLU"}, Plan{"layer 2 Tanh"}) == "layer 2 Tanh vs ReLU");
  CHECK(first_difference(Plan{"layer 2 ReLU"}, Plan{"layer 21 ReLU"}) == "layer 21 ReLU vs 2 ReLU");
  CHECK(first_difference(Plan{"rule Adam rate 0.001"}, Plan{"rule Adam rate 0.01"}) == "rule Adam rate 0.01 vs 0.001");
  CHECK(first_difference(Plan{"rule Adam"}, Plan{"rule Adam rate 0.01"}) == "rule Adam rate 0.01 vs Adam");
  CHECK(first_difference(ours, ours) == "no difference in the 2 lines sent");
}

TEST_CASE("two long values are shown where they differ", "[transport][plan]") {
  using Plan      = std::vector<std::string>;
  auto const ours = "layer 4 my::Layer<" + std::string(500, 'x') + ",Options<3>," + std::string(500, 'y') + ">";
  auto theirs     = ours;
  theirs[theirs.find('3')] = '4';
  auto const text          = first_difference(Plan{ours}, Plan{theirs});
  CHECK(text.size() <= 8 + 2 * 84 + 4);
  CHECK(text.starts_with("layer 4 ..xxx"));
  CHECK_THAT(text, Catch::Contains(",Options<4>,yyy") && Catch::Contains("yyy.. vs ..xxx") &&
                       Catch::Contains(",Options<3>,yyy"));
}

TEST_CASE("of long words that stand once the end is shown", "[transport][plan]") {
  using Plan      = std::vector<std::string>;
  auto const rule = "optimizer my::Rule<" + std::string(500, 'x') + "> rate ";
  auto const text = first_difference(Plan{rule + "0.1"}, Plan{rule + "0.2"});
  CHECK(text.size() == 2 + 64 + 3 + 4 + 3);
  CHECK(text.starts_with("..xxx"));
  CHECK(text.ends_with("xxx> rate 0.2 vs 0.1"));
}

TEST_CASE("the hash of a plan tells its lines apart, and where they end", "[transport][plan]") {
  auto const hash = [](std::vector<std::string> const& lines) { return plan_hash(lines); };
  CHECK(hash({"ab", "c"}) == hash({"ab", "c"}));
  CHECK(hash({"ab", "c"}) != hash({"a", "bc"}));
  CHECK(hash({"ab", "c"}) != hash({"ab"}));
  CHECK(buffer(hash({})) ==  // SHA-256 of nothing, as FIPS 180-4 has it
        from_hexadecimal("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
}
