// SPDX-License-Identifier: Apache-2.0
#include "test/transport/wire/wire_golden.hpp"
#include "test/transport/wire/wire_messages.hpp"

#include <chorale/transport/wire/crypto.hpp>
#include <chorale/transport/wire/handshake.hpp>
#include <chorale/transport/wire/plan_message.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using namespace chorale::wire;

namespace {

constexpr std::size_t hello_bytes = 112, server_bytes = 76, auth_bytes = 44;

/// Ends both with the same fault and the same sentence.
template <class Change> void refuses(Fault fault, std::string_view sentence, Change change, Rank to = 0) {
  for (Secret const* key : {&secret(), static_cast<Secret const*>(nullptr)}) {
    auto who = identity(2);
    change(who);
    auto dialer   = Initiator{who, to, key};
    auto acceptor = Responder{identity(0), key};
    talk(dialer, acceptor);
    CHECK(dialer.state() == State::refused);
    CHECK(acceptor.state() == State::refused);
    CHECK((dialer.fault() == fault && acceptor.fault() == fault));
    CHECK(acceptor.reason() == sentence);
    CHECK(dialer.reason() == sentence);
  }
}

Nonce nonce(unsigned first) {
  auto n = Nonce{};
  for (auto& byte : n) byte = static_cast<std::byte>(first++);
  return n;
}

}  // namespace

TEST_CASE("two sides that fit accept each other, however their bytes are cut", "[transport][handshake]") {
  auto const most = GENERATE(1U, 7U, 256U);
  for (Secret const* key : {&secret(), static_cast<Secret const*>(nullptr)}) {
    auto dialer     = Initiator{identity(2), 0, key};
    auto acceptor   = Responder{identity(0), key};
    auto const said = talk(dialer, acceptor, most);
    CHECK(dialer.state() == State::accepted);
    CHECK(acceptor.state() == State::accepted);
    CHECK(dialer.peer() == identity(0));
    CHECK(acceptor.peer() == identity(2));
    CHECK(said.dialer.size() == hello_bytes + auth_bytes);
    CHECK(said.acceptor.size() == server_bytes + hello_bytes);
  }
}

TEST_CASE("a handshake has the bytes that the page about the wire says", "[transport][golden]") {
  auto them    = identity(0);
  auto hash    = plan_hash(std::vector<std::string>{"dense/kernel f32[784,512]", "dense/bias f32[512]"});
  auto us      = identity(2);
  us.plan_hash = them.plan_hash = hash;
  them.incarnation              = 6;
  for (auto const accepts : {true, false}) {
    auto dialer   = Initiator{us, 0, &secret(), nonce(0)};
    auto acceptor = Responder{them, &secret(), nonce(100)};
    CHECK(move_bytes(dialer, acceptor) == from_hexadecimal(golden::client_hello));
    CHECK(move_bytes(acceptor, dialer) == from_hexadecimal(golden::server_hello));
    CHECK(move_bytes(dialer, acceptor) == from_hexadecimal(golden::client_auth));
    if (accepts) acceptor.accept();
    else acceptor.refuse(Fault::duplicate_rank, "two processes claim to be rank 2");
    CHECK(move_bytes(acceptor, dialer) == from_hexadecimal(accepts ? golden::accept : golden::refuse));
    CHECK(buffer(dialer.session_key()) == from_hexadecimal(golden::session_key));
    CHECK(acceptor.session_key() == dialer.session_key());
  }
}

TEST_CASE("a handshake takes no byte of what follows it", "[transport][handshake]") {
  auto dialer   = Initiator{identity(2), 0, &secret()};
  auto acceptor = Responder{identity(0), &secret()};
  move_bytes(dialer, acceptor);
  move_bytes(acceptor, dialer);
  auto auth = buffer(dialer.to_send());
  auth.resize(auth.size() + 10);
  CHECK(acceptor.feed(auth) == auth_bytes);
  CHECK(acceptor.feed(auth) == 0);  // it waits for its caller
  acceptor.accept();
  auto answer = buffer(acceptor.to_send());
  answer.resize(answer.size() + 10);
  CHECK(dialer.feed(answer) == hello_bytes);
  CHECK(dialer.feed(answer) == 0);
}

TEST_CASE("every connection has a key of its own, and none without a secret", "[transport][handshake]") {
  auto keys = std::vector<Key>{};
  for (int i = 0; i < 3; ++i) {
    auto dialer   = Initiator{identity(2), 0, &secret()};
    auto acceptor = Responder{identity(0), &secret()};
    CHECK_THROWS_AS(dialer.session_key(), BadArgument);  // nobody has proved anything yet
    talk(dialer, acceptor);
    CHECK(dialer.session_key() == acceptor.session_key());
    keys.push_back(dialer.session_key());
  }
  CHECK((keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]));
  auto dialer   = Initiator{identity(2), 0, nullptr};
  auto acceptor = Responder{identity(0), nullptr};
  talk(dialer, acceptor);
  CHECK_THROWS_AS(dialer.session_key(), BadArgument);
}

TEST_CASE("what does not fit is refused on both ends with both values", "[transport][handshake]") {
  refuses(Fault::world_mismatch, "rank 2 is of job cifar, and rank 0 of job mnist", [](Identity& who) {
    who.job = {};
    std::ranges::copy(bytes_of("cifar"), who.job.begin());
  });
  refuses(Fault::world_mismatch, "rank 2 is of job 00112233445566778899aabbccddeeff, and rank 0 of job mnist",
          [](Identity& who) {
            for (unsigned i = 0; i < 16; ++i) who.job[i] = static_cast<std::byte>(i * 0x11);
          });
  refuses(Fault::world_mismatch, "rank 2 has a world of 3, and rank 0 one of 4", [](Identity& who) { who.world = 3; });
  refuses(Fault::duplicate_rank, "two processes claim to be rank 0", [](Identity& who) { who.rank = 0; });
  refuses(Fault::world_mismatch, "rank 2 wants rank 1 where rank 0 is", [](Identity&) {}, 1);
  refuses(Fault::model_mismatch, "rank 2 has plan 5100000000000000, and rank 0 plan 5000000000000000",
          [](Identity& who) { who.plan_hash[0] = std::byte{0x51}; });
}

TEST_CASE("a rank that is none cannot be offered, and is refused when it comes all the same",
          "[transport][handshake]") {
  for (auto const rank : {-1, 4}) {
    auto who = identity(2);
    who.rank = rank;
    CHECK_THROWS_AS((Initiator{who, 0, nullptr}), BadArgument);
    CHECK_THROWS_AS((Responder{who, nullptr}), BadArgument);
  }
  for (auto const& [rank, sentence] :
       {std::pair{4, "there is no rank 4 in a world of 4"}, std::pair{-1, "there is no rank -1 in a world of 4"},
        std::pair{2'000'000'000, "there is no rank 2000000000 in a world of 4"}}) {
    auto hello = buffer(Initiator{identity(2), 0, nullptr}.to_send());
    Writer{Bytes{hello}.subspan(28)}.number(std::int32_t{rank});
    auto acceptor = Responder{identity(0), nullptr};
    acceptor.feed(hello);
    auto auth = buffer(ConstBytes{hello}.first(auth_bytes));
    auth[10]  = std::byte{3};
    acceptor.feed(auth);
    CHECK(acceptor.state() == State::refused);
    CHECK(acceptor.fault() == Fault::world_mismatch);
    CHECK(acceptor.reason() == sentence);
  }
}

TEST_CASE("who answers as another rank than was called is refused by the caller", "[transport][handshake]") {
  auto dialer   = Initiator{identity(2), 0, nullptr};
  auto acceptor = Responder{identity(0), nullptr};
  move_bytes(dialer, acceptor);
  move_bytes(acceptor, dialer);
  move_bytes(dialer, acceptor);
  acceptor.accept();
  auto answer = buffer(acceptor.to_send());
  SECTION("another rank") {
    answer[28] = std::byte{1};
    dialer.feed(answer);
    CHECK(dialer.reason() == "rank 2 wants rank 0 where rank 1 is");
  }
  SECTION("another world") {
    answer[36] = std::byte{9};
    dialer.feed(answer);
    CHECK(dialer.reason() == "rank 0 has a world of 9, and rank 2 one of 4");
  }
  CHECK(dialer.state() == State::refused);
  CHECK(dialer.fault() == Fault::world_mismatch);
}

TEST_CASE("the caller refuses a rank that is taken, and both ends say so", "[transport][handshake]") {
  auto dialer   = Initiator{identity(2), 0, &secret()};
  auto acceptor = Responder{identity(0), &secret()};
  CHECK_THROWS_AS(acceptor.accept(), BadArgument);  // nobody has asked
  CHECK_THROWS_AS(acceptor.refuse(Fault::evicted, "no"), BadArgument);
  move_bytes(dialer, acceptor);
  move_bytes(acceptor, dialer);
  move_bytes(dialer, acceptor);
  REQUIRE(acceptor.state() == State::asking);
  CHECK(acceptor.peer() == identity(2));
  auto const sentence = std::string{"rank 2 is at 10.0.0.4:4400, and 10.0.0.9:4400 claims to be it, too"};
  SECTION("in full") {
    acceptor.refuse(Fault::duplicate_rank, sentence);
    move_bytes(acceptor, dialer);
    CHECK(dialer.reason() == sentence);
    CHECK(dialer.fault() == Fault::duplicate_rank);
  }
  SECTION("which may be missing") {
    acceptor.refuse(Fault::duplicate_rank, "");
    move_bytes(acceptor, dialer);
    CHECK(dialer.reason() == "rank 0 refuses rank 2 and does not say why");
    CHECK(dialer.fault() == Fault::duplicate_rank);
  }
  SECTION("as far as there is room") {
    acceptor.refuse(Fault::evicted, std::string(1'000, 'x'));
    move_bytes(acceptor, dialer);
    CHECK(dialer.reason() == std::string(205, 'x') + "...");
    CHECK(dialer.fault() == Fault::evicted);
  }
  CHECK(dialer.state() == State::refused);
}

TEST_CASE("another secret, or one on one side only, is refused without a detail on the wire",
          "[transport][handshake]") {
  struct Case {
    Secret const *dialer, *acceptor;
    std::string at_dialer, at_acceptor;
  };
  auto const cases = std::vector<Case>{{&other_secret(), &secret(), "rank 0 and rank 2 have no secret in common",
                                        "who connected and rank 0 have no secret in common"},
                                       {&secret(), nullptr, "rank 0 has no secret, and rank 2 has one",
                                        "who connected has a secret, and rank 0 has none"},
                                       {nullptr, &secret(), "rank 0 has a secret, and rank 2 has none",
                                        "who connected has no secret, and rank 0 has one"}};
  for (auto const& [key, other_key, at_dialer, at_acceptor] : cases) {
    auto dialer     = Initiator{identity(2), 0, key};
    auto acceptor   = Responder{identity(0), other_key};
    auto const said = talk(dialer, acceptor);
    CHECK((dialer.state() == State::refused && acceptor.state() == State::refused));
    CHECK((dialer.fault() == Fault::not_authentic && acceptor.fault() == Fault::not_authentic));
    CHECK(dialer.reason() == at_dialer);
    CHECK(acceptor.reason() == at_acceptor);
    auto const last = key == &other_secret() ? said.dialer : said.acceptor;  // who saw it first refuses, in 48 bytes
    REQUIRE(last.size() >= 48);
    auto const refusal = ConstBytes{last}.last(48);
    CHECK(refusal[10] == std::byte{5});
    CHECK(refusal[13] == std::byte{0});  // no text
  }
}

TEST_CASE("a recorded handshake is refused when it is played again, to either side", "[transport][handshake]") {
  auto dialer     = Initiator{identity(2), 0, &secret()};
  auto acceptor   = Responder{identity(0), &secret()};
  auto const said = talk(dialer, acceptor);
  REQUIRE(acceptor.state() == State::accepted);

  auto again = Responder{identity(0), &secret()};
  CHECK(again.feed(said.dialer) == said.dialer.size());
  CHECK(again.state() == State::refused);
  CHECK(again.fault() == Fault::not_authentic);

  auto other = Initiator{identity(2), 0, &secret()};
  other.feed(said.acceptor);
  CHECK(other.state() == State::refused);
  CHECK(other.fault() == Fault::not_authentic);
}

TEST_CASE("one's own bytes, sent back, prove nothing", "[transport][handshake]") {
  auto dialer = Initiator{identity(2), 0, &secret()};
  dialer.feed(buffer(dialer.to_send()));
  CHECK(dialer.state() == State::refused);

  auto acceptor    = Responder{identity(0), &secret()};
  auto const hello = buffer(Initiator{identity(2), 0, &other_secret()}.to_send());
  SECTION("as they are") {
    acceptor.feed(hello);
    acceptor.feed(buffer(acceptor.to_send()));
  }
  SECTION("the server's proof as the client's") {
    acceptor.feed(hello);
    auto const answer = buffer(acceptor.to_send());
    auto auth         = buffer(ConstBytes{answer}.first(12));
    auth[10]          = std::byte{3};
    auth.insert(auth.end(), answer.end() - 32, answer.end());
    acceptor.feed(auth);
  }
  SECTION("a proof from another conversation with the same server") {
    auto second = Responder{identity(0), &secret()};
    second.feed(hello);
    auto helper = Initiator{identity(2), 0, &secret()};
    acceptor.feed(buffer(helper.to_send()));
    auto const its = buffer(second.to_send());
    helper.feed(its);  // made for another hello
    CHECK(helper.state() == State::refused);
    acceptor.feed(buffer(helper.to_send()));
  }
  CHECK(acceptor.state() == State::refused);
  CHECK(acceptor.fault() == Fault::not_authentic);
}

TEST_CASE("other versions are told apart before anything else, and both ends name both", "[transport][handshake]") {
  for (Secret const* key : {&secret(), static_cast<Secret const*>(nullptr)}) {
    auto newer         = identity(2);
    newer.wire_version = {.major = 7, .minor = 1};
    newer.world        = 9;  // it would not fit either
    auto dialer        = Initiator{newer, 0, key};
    auto acceptor      = Responder{identity(0), &other_secret()};
    talk(dialer, acceptor);
    CHECK((dialer.state() == State::refused && acceptor.state() == State::refused));
    CHECK((dialer.fault() == Fault::version_mismatch && acceptor.fault() == Fault::version_mismatch));
    CHECK(dialer.reason() == "rank 0 speaks version 2.0 of the wire format, and rank 2 version 7.1");
    CHECK(acceptor.reason() == "who connected speaks version 7.1 of the wire format, and rank 0 version 2.0");
  }
}

TEST_CASE("a peer with a newer minor version is accepted, and both speak the smaller", "[transport][handshake]") {
  for (Secret const* key : {&secret(), static_cast<Secret const*>(nullptr)}) {
    for (auto const& [theirs, ours] : {std::pair{3, 0}, {0, 3}, {2, 5}, {4, 4}}) {
      auto caller = identity(2), called = identity(0);
      caller.wire_version = {version.major, static_cast<std::uint8_t>(theirs)};
      called.wire_version = {version.major, static_cast<std::uint8_t>(ours)};
      auto dialer         = Initiator{caller, 0, key};
      auto acceptor       = Responder{called, key};
      talk(dialer, acceptor);
      REQUIRE((dialer.state() == State::accepted && acceptor.state() == State::accepted));
      CHECK((dialer.peer() == called && acceptor.peer() == caller));
      auto const smaller = Version{version.major, static_cast<std::uint8_t>(std::min(theirs, ours))};
      CHECK(dialer.agreed() == smaller);
      CHECK(acceptor.agreed() == smaller);
    }
  }
}

TEST_CASE("a handshake made by hand with a newer minor version is accepted", "[transport][handshake]") {
  auto hello    = buffer(Initiator{identity(2), 0, nullptr}.to_send());
  auto auth     = buffer(ConstBytes{hello}.first(auth_bytes));
  auth[10]      = std::byte{3};
  auto acceptor = Responder{identity(0), nullptr};
  hello[9]      = std::byte{9};  // 2.9
  acceptor.feed(hello);
  CHECK(acceptor.to_send()[8] == std::byte{2});
  CHECK(acceptor.to_send()[9] == std::byte{0});  // each says its own
  SECTION("it says the same version in all of its messages") {
    auth[9] = std::byte{9};
    acceptor.feed(auth);
    REQUIRE(acceptor.state() == State::asking);
    CHECK(acceptor.peer().wire_version == Version{2, 9});
    CHECK(acceptor.agreed() == Version{2, 0});
  }
  SECTION("it says another one in between") {
    acceptor.feed(auth);
    CHECK(acceptor.state() == State::refused);
    CHECK(acceptor.fault() == Fault::not_authentic);
  }
}

TEST_CASE("a handshake that stops after any byte neither ends nor accepts", "[transport][handshake]") {
  auto dialer     = Initiator{identity(2), 0, &secret(), nonce(0)};
  auto acceptor   = Responder{identity(0), &secret(), nonce(1)};
  auto const said = talk(dialer, acceptor);
  for (std::size_t n = 0; n < said.dialer.size(); ++n) {
    auto half = Responder{identity(0), &secret(), nonce(1)};
    CHECK(half.feed(ConstBytes{said.dialer}.first(n)) == n);
    CHECK(half.state() == State::talking);
  }
  for (std::size_t n = 0; n < said.acceptor.size(); ++n) {
    auto half = Initiator{identity(2), 0, &secret(), nonce(0)};
    CHECK(half.feed(ConstBytes{said.acceptor}.first(n)) == n);
    CHECK(half.state() == State::talking);
  }
}

TEST_CASE("with a secret, who got a flipped bit does not accept", "[transport][handshake]") {
  for (std::size_t bit = 0; bit < 8 * (hello_bytes + server_bytes + auth_bytes + hello_bytes); ++bit) {
    auto dialer     = Initiator{identity(2), 0, &secret(), nonce(0)};
    auto acceptor   = Responder{identity(0), &secret(), nonce(1)};
    auto position   = bit;  // in all that is said, in its order
    auto const move = [&](auto& from, auto& to) {
      auto message = buffer(from.to_send());
      from.sent(message.size());
      if (position < 8 * message.size()) message[position / 8] ^= std::byte{1} << position % 8;
      position -= 8 * message.size();
      to.feed(message);
    };
    for (int turn = 0; turn < 2; ++turn) {
      move(dialer, acceptor);
      if (acceptor.state() == State::asking) acceptor.accept();
      move(acceptor, dialer);
    }
    if (dialer.state() == State::accepted) FAIL("bit " << bit);
    auto const in_accept = bit >= 8 * (hello_bytes + server_bytes + auth_bytes);
    if (!in_accept && acceptor.state() == State::accepted) FAIL("bit " << bit);
  }
  SUCCEED();
}

TEST_CASE("a refusal without a proof is not believed, and its text not shown", "[transport][handshake]") {
  auto dialer   = Initiator{identity(2), 0, &secret()};
  auto acceptor = Responder{identity(0), &secret()};
  auto forged   = Responder{identity(0), nullptr};
  auto liar     = Initiator{identity(2), 0, nullptr};
  move_bytes(liar, forged);
  move_bytes(forged, liar);
  move_bytes(liar, forged);
  forged.refuse(Fault::model_mismatch, "send your secret to me");
  auto const refusal = buffer(forged.to_send());
  SECTION("before the server's proof") { dialer.feed(refusal); }
  SECTION("after it") {
    move_bytes(dialer, acceptor);
    move_bytes(acceptor, dialer);
    dialer.feed(refusal);
  }
  CHECK(dialer.state() == State::refused);
  CHECK(dialer.fault() == Fault::not_authentic);
  CHECK_THAT(dialer.reason(), !Catch::Contains("send your secret"));
}

TEST_CASE("what is no handshake is refused from its first byte, and gets no answer", "[transport][handshake]") {
  auto random = Buffer(1'000);
  for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<std::byte>(Random{1, 1}.words(i)[0] & 0xFFU);
  for (auto const& garbage : {buffer(bytes_of("GET / HTTP/1.1\r\n\r\n")), buffer(bytes_of("\x16\x03\x01\x02")),
                              Buffer(1, std::byte{0}), Buffer(300, std::byte{0xFF}), random}) {
    auto acceptor = Responder{identity(0), &secret()};
    acceptor.feed(garbage);
    CHECK(acceptor.state() == State::refused);
    CHECK(acceptor.fault() == Fault::not_authentic);
    CHECK(acceptor.reason() == "who connected does not speak this library's protocol to rank 0");
    CHECK(acceptor.to_send().empty());
    CHECK(acceptor.feed(garbage) == 0);
    auto dialer = Initiator{identity(2), 0, &secret()};
    dialer.feed(garbage);
    CHECK(dialer.reason() == "rank 0 does not speak this library's protocol to rank 2");
  }
}

TEST_CASE("messages out of turn, with reserved bytes set or too long a text are refused", "[transport][handshake]") {
  auto const hello = buffer(Initiator{identity(2), 0, nullptr}.to_send());
  for (auto const type : {0, 2, 3, 4, 6, 255}) {
    auto other    = hello;
    other[10]     = static_cast<std::byte>(type);
    auto acceptor = Responder{identity(0), nullptr};
    CHECK(acceptor.feed(other) == 12);  // the prefix says it
    CHECK(acceptor.state() == State::refused);
  }
  auto reserved = hello;
  reserved[46]  = std::byte{1};
  auto acceptor = Responder{identity(0), nullptr};
  acceptor.feed(reserved);
  auto auth = buffer(ConstBytes{hello}.first(auth_bytes));
  auth[10]  = std::byte{3};
  acceptor.feed(auth);
  CHECK(acceptor.state() == State::refused);

  auto refusal = Buffer(256);
  std::ranges::copy(ConstBytes{hello}.first(12), refusal.begin());
  refusal[10] = std::byte{5};
  refusal[13] = std::byte{209};  // one more than there is room for
  auto dialer = Initiator{identity(2), 0, nullptr};
  dialer.feed(refusal);
  CHECK(dialer.reason() == "rank 0 does not speak this library's protocol to rank 2");
}

TEST_CASE("HMAC and HKDF have the values of their standards", "[transport][golden]") {
  auto const key = Buffer(20, std::byte{0x0B});  // RFC 4231, case 1; RFC 5869, case 1
  CHECK(buffer(hmac_sha256(key, bytes_of("Hi There"))) ==
        from_hexadecimal("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  CHECK(buffer(hkdf_sha256(Buffer(22, std::byte{0x0B}), from_hexadecimal("000102030405060708090a0b0c"),
                           from_hexadecimal("f0f1f2f3f4f5f6f7f8f9"))) ==
        from_hexadecimal("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"));
  CHECK(fresh_nonce() != fresh_nonce());
}
