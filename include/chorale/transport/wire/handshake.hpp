// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/secret.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/crypto.hpp>
#include <chorale/transport/wire/handshake_state.hpp>
#include <chorale/transport/wire/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace chorale::wire {

/// Handshake of the side that connects.
///
///   Initiator                                                Responder
///     ClientHello {identity, to, nonce}           ──────▶
///                                                 ◀──────   ServerHello {nonce, proof}
///     ClientAuth  {proof}                         ──────▶
///                                                 ◀──────   Accept {identity, proof}, or Refuse {fault, text, proof}
///
/// A proof is an HMAC-SHA256, with the secret, of a label for this message, of both hellos and of the message. Without
/// a secret the same messages are sent, and nothing is proved. docs/55-wire.md documents all bytes.
///
/// secret  must live as long as the Initiator; nullptr for none: then the other side must have none, too
/// nonce   for tests only: a nonce that is used twice ends the protection against replay
/// keeps   accepted: the other end has proved the secret, if there is one, on this connection; and the two fit together
class Initiator : public Handshake {
 public:
  Initiator(Identity const& me, Rank peer, Secret const* secret, Nonce const& nonce = fresh_nonce())
      : Handshake{me, peer, secret, Message::server_hello}, to_{peer} {
    auto hello = begin(Message::client_hello);
    detail::write(hello, me, peer);
    hello.bytes(nonce);
    end(hello);
    remember_client(written());
  }

  /// Takes bytes of the other end until the handshake is over; returns their number.
  std::size_t feed(ConstBytes in) {
    return gather(in, [&](ConstBytes message) { proved() ? on_accept(message) : on_server_hello(message); });
  }

 private:
  void on_server_hello(ConstBytes message) {
    remember_server(message);
    if (!agrees_on_secret(message) || !proves(message, Label::server)) return send_refusal(no_common_secret(message));
    set_proved();
    auto auth = begin(Message::client_auth);
    end_with_proof(auth, Label::client);
    expect(Message::accept);
  }

  void on_accept(ConstBytes message) {
    auto from          = Reader{message.subspan(prefix_bytes)};
    auto const claimed = detail::read_identity(from, theirs());
    if (!proves(message, Label::accept)) return give_up(no_common_secret(message));
    if (!claimed.whole) return give_up(no_handshake());
    if (claimed.identity.rank != to_)
      return give_up({Fault::world_mismatch, detail::rank_text(me().rank) + " wants " + detail::rank_text(to_) +
                                                 " where " + detail::rank_text(claimed.identity.rank) + " is"});
    if (auto wrong = misfit(claimed.identity, claimed.to, me())) return give_up(std::move(*wrong));
    set_peer(claimed.identity);
    set_state(State::accepted);
  }

  Rank to_;
};

/// Handshake of the side that listens. See Initiator.
///
/// keeps   asking: the peer has the secret, if there is one, is of this job and fits. The caller decides whether its
///         rank is free and its incarnation is current, and calls accept() or refuse()
class Responder : public Handshake {
 public:
  explicit Responder(Identity const& me, Secret const* secret, Nonce const& nonce = fresh_nonce())
      : Handshake{me, std::nullopt, secret, Message::client_hello}, nonce_{nonce} {}

  /// Takes bytes of the other end until the handshake is over or waits for the caller; returns their number.
  std::size_t feed(ConstBytes in) {
    return gather(in, [&](ConstBytes message) {
      hello_came_ ? on_client_auth(message) : on_client_hello(message);
    });
  }

  void accept() {
    CHORALE_EXPECTS(state() == State::asking, "nobody asks to be accepted");
    auto message = begin(Message::accept);
    detail::write(message, me(), peer().rank);
    end_with_proof(message, Label::accept);
    set_state(State::accepted);
  }

  /// The rank that the other end claims to be, without proof; empty before its hello.
  std::optional<Rank> claimed() const {
    if (!hello_came_) return std::nullopt;
    auto from = Reader{client_hello().subspan(prefix_bytes)};
    return detail::read_identity(from, theirs()).identity.rank;
  }

  /// reason  a part of a sentence with both values, which is sent to the other end, too
  void refuse(Fault fault, std::string reason) {
    CHORALE_EXPECTS(state() == State::asking, "nobody asks to be accepted");
    send_refusal({fault, std::move(reason)});
  }

 private:
  void on_client_hello(ConstBytes message) {
    hello_came_ = true;
    remember_client(message);
    if (!agrees_on_secret(message)) return send_refusal(no_common_secret(message));
    auto hello = begin(Message::server_hello);
    hello.bytes(nonce_);
    end(hello);
    remember_server(written());
    end_with_proof(hello, Label::server);
    expect(Message::client_auth);
  }

  void on_client_auth(ConstBytes message) {
    if (!proves(message, Label::client)) return send_refusal(no_common_secret(message));
    set_proved();
    auto from          = Reader{client_hello().subspan(prefix_bytes)};
    auto const claimed = detail::read_identity(from, theirs());
    if (!claimed.whole) return send_refusal(no_handshake());
    set_peer(claimed.identity);
    if (auto wrong = misfit(claimed.identity, claimed.to, me())) return send_refusal(std::move(*wrong));
    set_state(State::asking);
  }

  Nonce nonce_;
  bool hello_came_ = false;
};

}  // namespace chorale::wire
