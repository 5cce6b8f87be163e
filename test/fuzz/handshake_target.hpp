// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/transport/wire/handshake.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale::test {

/// What a stranger, or someone in the middle, does: numbers and bytes from an input; zeros and nothing after its end.
class Instructions {
 public:
  explicit Instructions(ConstBytes in) : in_{in} {}

  bool done() const { return in_.empty(); }
  std::uint8_t number() {
    if (in_.empty()) return 0;
    auto const first = std::to_integer<std::uint8_t>(in_[0]);
    in_              = in_.subspan(1);
    return first;
  }
  ConstBytes bytes(std::size_t n) {
    auto const some = in_.first(std::min(n, in_.size()));
    in_             = in_.subspan(some.size());
    return some;
  }

 private:
  ConstBytes in_;
};

using FuzzState = wire::Handshake::State;

inline wire::Nonce fixed_nonce(unsigned first) {
  auto nonce = wire::Nonce{};
  for (auto& byte : nonce) byte = static_cast<std::byte>(first++);
  return nonce;
}

inline wire::Identity fuzz_identity(Rank rank) { return {.rank = rank, .world = 4, .plan_hash = fixed_nonce(7)}; }

/// What holds for both ends, after every call.
inline void check_side(wire::Handshake const& side) {
  must(side.to_send().size() <= wire::Handshake::buffer_bytes, "more to send than a buffer holds");
  must((side.state() == FuzzState::refused) == !side.reason().empty(), "a refusal without a reason");
}

template <class Side> std::size_t fuzz_feed(Side& side, ConstBytes bytes) {
  auto const talking = side.state() == FuzzState::talking;
  auto const taken   = side.feed(bytes);
  must(taken <= bytes.size(), "it took more than there was");
  must(talking || taken == 0, "it took bytes after the end");
  must(side.state() != FuzzState::talking || taken == bytes.size(), "it left bytes and goes on talking");
  check_side(side);
  return taken;
}

/// A stranger says anything to one end.
template <class Side> void fuzz_stranger(Side side, Instructions from, bool has_secret) {
  auto const most = 1U + from.number();
  while (!from.done() && side.state() == FuzzState::talking) {
    side.sent(side.to_send().size());
    fuzz_feed(side, from.bytes(most));
  }
  if (has_secret) must(side.state() == FuzzState::talking || side.state() == FuzzState::refused, "a stranger came in");
}

/// One direction between two honest ends, through someone in the middle.
struct Path {
  std::vector<std::byte> sent, got;
  std::size_t passed = 0;  // of what was sent: delivered, or dropped

  template <class From> void take(From& from) {
    sent.insert(sent.end(), from.to_send().begin(), from.to_send().end());
    from.sent(from.to_send().size());
  }

  std::vector<std::byte> next(std::size_t n) {
    auto const rest = ConstBytes{sent}.subspan(passed);
    auto const some = rest.first(std::min(n, rest.size()));
    passed += some.size();
    return {some.begin(), some.end()};
  }

  template <class To> void deliver(To& to, ConstBytes bytes) {
    auto const taken = bytes.first(fuzz_feed(to, bytes));
    got.insert(got.end(), taken.begin(), taken.end());
  }

  /// The first bytes that came, n at most, are those that were sent.
  bool untouched(std::size_t n = 1'000) const {
    return std::ranges::equal(ConstBytes{got}.first(std::min(n, got.size())),
                              ConstBytes{sent}.first(std::min({n, got.size(), sent.size()})));
  }
};

/// One thing that the one in the middle does with the bytes to one end.
template <class To> void interfere(To& to, Path& path, unsigned how, Instructions& from) {
  auto const n = std::size_t{from.number()};
  if (how == 0) {
    path.deliver(to, path.next(n));
  } else if (how == 1) {  // change
    auto bytes = path.next(n);
    if (!bytes.empty()) bytes.back() ^= static_cast<std::byte>(from.number());
    path.deliver(to, bytes);
  } else if (how == 2) {  // drop
    path.next(n);
  } else {  // make up
    path.deliver(to, from.bytes(n));
  }
}

/// Someone in the middle delivers, changes, drops and makes up bytes, in both directions.
inline void fuzz_middle(Instructions from, Secret const* secret) {
  auto dialer   = wire::Initiator{fuzz_identity(2), 0, secret, fixed_nonce(1)};
  auto acceptor = wire::Responder{fuzz_identity(0), secret, fixed_nonce(101)};
  auto there = Path{}, back = Path{};
  while (!from.done()) {
    there.take(dialer);
    back.take(acceptor);
    auto const what = from.number();
    if (what % 2 == 0) interfere(acceptor, there, what / 2 % 4U, from);
    else interfere(dialer, back, what / 2 % 4U, from);
    auto const asks = acceptor.state() == FuzzState::asking;
    if (secret != nullptr && asks)  // what came after the proof may be anything
      must(there.untouched() && back.untouched(76), "the acceptor heard what the dialer did not say");
    if (secret != nullptr && dialer.state() == FuzzState::accepted)
      must(there.untouched() && back.untouched(), "the dialer heard what the acceptor did not say");
    if (asks && what < 128) acceptor.accept();
    else if (asks) acceptor.refuse(Fault::evicted, "it is gone");
    check_side(acceptor);
  }
}

/// Any bytes, as what strangers do: the first says who is attacked, and whether there is a secret.
inline void fuzz_handshake(ConstBytes in) {
  static auto const secret = Secret{fixed_nonce(200)};
  auto from                = Instructions{in};
  auto const mode          = from.number();
  auto const* key          = mode / 4 % 2 == 0 ? &secret : nullptr;
  if (mode % 4 == 0) fuzz_stranger(wire::Responder{fuzz_identity(0), key, fixed_nonce(101)}, from, key != nullptr);
  else if (mode % 4 == 1)
    fuzz_stranger(wire::Initiator{fuzz_identity(2), 0, key, fixed_nonce(1)}, from, key != nullptr);
  else fuzz_middle(from, key);
}

}  // namespace chorale::test
