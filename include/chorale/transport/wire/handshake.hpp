// SPDX-License-Identifier: Apache-2.0
//
// One protocol in one piece: the state of a handshake, and its two sides.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/secret.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/crypto.hpp>
#include <chorale/transport/wire/identity.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace chorale::wire {

/// Common part of both ends of a handshake: a state machine over bytes, independent of sockets.
///
///   while (side.state() == Handshake::State::talking) {
///     side.sent(write_some(side.to_send()));
///     side.feed(read_some());                              // returns how many bytes it took
///   }
///   write_all(side.to_send());                             // also when refused: this sends the refusal
///
/// keeps   feed() accepts any bytes and never throws because of them: anything but a handshake is refused. It takes no
///         byte that follows the handshake. Two buffers of 256 bytes; before the peer has proved itself, nothing is
///         allocated but the text of a refusal
class Handshake {
 public:
  enum class State {
    talking,   // send to_send(), and feed()
    asking,    // Responder only: accept() or refuse()
    accepted,  // frames may follow
    refused    // see fault() and reason()
  };

  static constexpr std::size_t buffer_bytes = 256;

  State state() const { return state_; }

  /// The bytes to send to the other end next; valid until feed(), accept() or refuse().
  ConstBytes to_send() const { return ConstBytes{out_}.subspan(sent_, out_size_ - sent_); }

  /// Reports that n bytes of to_send() were sent.
  void sent(std::size_t n) {
    CHORALE_EXPECTS(n <= to_send().size(), std::to_string(n) + " bytes of " + std::to_string(to_send().size()));
    sent_ += n;
  }

  /// Identity of the other end, in the states asking and accepted.
  Identity const& peer() const { return peer_; }

  /// Version of this connection's frames, in the states asking and accepted: the smaller minor. The proofs cover both
  /// versions, so that with a secret nobody in between can lower it.
  Version agreed() const { return std::min(me_.wire_version, theirs()); }

  /// The fault of a refusal, for programs; reason() is for people, a part of a sentence with both values.
  Fault fault() const { return refusal_.fault; }
  std::string const& reason() const { return refusal_.reason; }

  /// True if there is a session key, which only the two ends of this connection have: both have proved a secret.
  ///
  /// source  HKDF-SHA256 of the secret, salted with both nonces
  bool has_session_key() const { return secret_ != nullptr && proved_; }
  Key session_key() const {
    CHORALE_EXPECTS(has_session_key(), "a session key comes of a secret that both ends have proved");
    auto salt = std::array<std::byte, 2 * sizeof(Nonce)>{};
    auto both = Writer{salt};
    both.bytes(client_hello().last(sizeof(Nonce)));
    both.bytes(ConstBytes{transcript_}.last(sizeof(Nonce)));
    return hkdf_sha256(secret_->bytes(), salt, std::as_bytes(Span<char const>{Label::frames}));
  }

 protected:
  enum class Message : std::uint8_t { client_hello = 1, server_hello, client_auth, accept, refuse };

  static constexpr std::size_t prefix_bytes = 12;  // the same in all versions
  static constexpr std::size_t hello_bytes  = prefix_bytes + detail::identity_bytes + sizeof(Nonce);
  static constexpr std::size_t server_bytes = prefix_bytes + sizeof(Nonce) + sizeof(Mac);
  static constexpr std::size_t auth_bytes   = prefix_bytes + sizeof(Mac);
  static constexpr std::size_t accept_bytes = prefix_bytes + detail::identity_bytes + sizeof(Mac);
  static constexpr std::size_t refuse_bytes = prefix_bytes + 4 + sizeof(Mac);  // and a text; the same in all versions
  static constexpr std::size_t max_text     = buffer_bytes - refuse_bytes;

  /// peer      the rank that should answer; empty if any rank may connect
  /// expected  type of the first message
  Handshake(Identity const& me, std::optional<Rank> peer, Secret const* secret, Message expected)
      : me_{me}, secret_{secret}, expected_{expected},
        peer_name_{peer ? detail::rank_text(*peer) : std::string{"who connected"}} {
    CHORALE_EXPECTS(me.rank >= 0 && me.rank < me.world,
                    "there is no rank " + std::to_string(me.rank) + " in a world of " + std::to_string(me.world));
  }

  Identity const& me() const { return me_; }
  Version theirs() const { return theirs_.value_or(me_.wire_version); }  // from the peer's first message
  bool proved() const { return proved_; }
  bool has_secret() const { return secret_ != nullptr; }
  void expect(Message next) { expected_ = next; }
  void set_proved() { proved_ = true; }  // the peer has the secret, or there is none
  void set_state(State state) { state_ = state; }
  void set_peer(Identity const& peer) {
    peer_      = peer;
    peer_name_ = detail::rank_text(peer.rank);
  }

  /// Takes bytes, and calls act(message) with each message that is complete, with its prefix.
  template <class Act> std::size_t gather(ConstBytes in, Act act) {
    auto taken = std::size_t{0};
    while (state_ == State::talking && taken < in.size()) {
      auto const n = std::min(wanted() - in_size_, in.size() - taken);
      std::ranges::copy(in.subspan(taken, n), in_.begin() + static_cast<std::ptrdiff_t>(in_size_));
      taken += n;
      in_size_ += n;
      check_prefix();
      if (state_ != State::talking || in_size_ < wanted()) continue;
      auto const message = ConstBytes{in_}.first(std::exchange(in_size_, 0));
      if (type_of(message) == Message::refuse) read_refusal(message);
      else act(message);
    }
    return taken;
  }

  /// Begins a message. The previous one was sent: the peer has answered it.
  Writer begin(Message type) {
    sent_ = out_size_ = 0;
    auto to           = Writer{out_};
    to.bytes(magic);
    to.number(me_.wire_version.major);
    to.number(me_.wire_version.minor);
    to.number(static_cast<std::uint8_t>(type));
    to.number(static_cast<std::uint8_t>(has_secret()));
    return to;
  }
  void end(Writer const& message) { out_size_ = message.size(); }
  void end_with_proof(Writer& message, std::string_view label) {
    message.bytes(proof(label, ConstBytes{out_}.first(message.size())));
    end(message);
  }

  /// Stores the hellos of both ends, with both nonces, which every proof covers: the client's hello, and the server's
  /// up to its proof.
  void remember_client(ConstBytes hello) { std::ranges::copy(hello, transcript_.begin()); }
  void remember_server(ConstBytes hello) {
    std::ranges::copy(hello.first(prefix_bytes + sizeof(Nonce)), transcript_.begin() + hello_bytes);
  }
  ConstBytes client_hello() const { return ConstBytes{transcript_}.first(hello_bytes); }
  ConstBytes written() const { return ConstBytes{out_}.first(out_size_); }

  /// True if the message ends with the proof of its sender, or no secret is set. Each message has a separate label,
  /// so that no proof can be sent back to its sender.
  bool proves(ConstBytes message, std::string_view label) const {
    auto const said = message.first(message.size() - sizeof(Mac));
    return !has_secret() || same(message.last(sizeof(Mac)), proof(label, said));
  }

  /// Ends the handshake and sends a refusal; with the reason only if the other end has proved itself.
  void send_refusal(Refusal refusal) {
    auto const text = proved_ ? detail::cut(refusal.reason, max_text) : std::string{};
    auto to         = begin(Message::refuse);
    to.number(static_cast<std::uint8_t>(refusal.fault));
    to.number(static_cast<std::uint8_t>(text.size()));
    to.number(std::uint16_t{0});
    to.text(text);
    to.bytes(proved_ ? proof(Label::refuse, ConstBytes{out_}.first(to.size())) : Mac{});
    end(to);
    give_up(std::move(refusal));
  }

  /// Ends the handshake without a message.
  void give_up(Refusal refusal) {
    refusal_ = std::move(refusal);
    state_   = State::refused;
  }

  Refusal no_handshake() const {
    return {Fault::not_authentic, peer_name_ + " does not speak this library's protocol to " + my_name()};
  }

  /// True if both ends have a secret, or neither has.
  bool agrees_on_secret(ConstBytes message) const {
    return message[prefix_bytes - 1] == static_cast<std::byte>(has_secret());
  }
  Refusal no_common_secret(ConstBytes message) const {
    auto const theirs = message[prefix_bytes - 1] != std::byte{0};
    if (theirs != has_secret())
      return {Fault::not_authentic, peer_name_ + (theirs ? " has a secret, and " : " has no secret, and ") + my_name() +
                                        (has_secret() ? " has one" : " has none")};
    return {Fault::not_authentic, peer_name_ + " and " + my_name() + " have no secret in common"};
  }

  /// Purposes of proofs and keys; 16 characters each.
  struct Label {
    static constexpr std::string_view server = "chorale 1 server", client = "chorale 1 client",
                                      accept = "chorale 1 accept", refuse = "chorale 1 refuse",
                                      frames = "chorale 1 frames";
  };

 private:
  static constexpr auto magic = std::array{std::byte{0xC4}, std::byte{'h'}, std::byte{'o'}, std::byte{'r'},
                                           std::byte{'a'},  std::byte{'l'}, std::byte{'e'}, std::byte{0x0D}};

  static Message type_of(ConstBytes message) { return static_cast<Message>(message[magic.size() + 2]); }
  std::string my_name() const { return detail::rank_text(me_.rank); }

  /// Size in bytes of the message that begins in in_, as far as it is known.
  std::size_t wanted() const {
    if (in_size_ < prefix_bytes) return prefix_bytes;
    switch (type_of(in_)) {
      case Message::client_hello: return hello_bytes;
      case Message::server_hello: return server_bytes;
      case Message::client_auth: return auth_bytes;
      case Message::accept: return accept_bytes;
      case Message::refuse: break;
    }
    return refuse_bytes + (in_size_ < prefix_bytes + 2 ? 0 : std::to_integer<std::size_t>(in_[prefix_bytes + 1]));
  }

  /// Refuses at the first wrong byte. The version is checked first: other versions may have another layout.
  void check_prefix() {
    for (std::size_t i = 0; i < std::min(in_size_, magic.size()); ++i)
      if (in_[i] != magic[i]) return give_up(no_handshake());
    if (in_size_ < prefix_bytes) return;
    if (type_of(in_) == Message::refuse) {
      if (in_size_ > prefix_bytes + 1 && std::to_integer<std::size_t>(in_[prefix_bytes + 1]) > max_text)
        give_up(no_handshake());
    } else if (version_of(in_).major != me_.wire_version.major) {
      send_refusal(other_version(version_of(in_)));
    } else if (type_of(in_) != expected_ || version_of(in_) != theirs_.value_or(version_of(in_))) {
      give_up(no_handshake());
    } else {
      theirs_ = version_of(in_);
    }
  }

  static Version version_of(ConstBytes message) {
    return {std::to_integer<std::uint8_t>(message[magic.size()]),
            std::to_integer<std::uint8_t>(message[magic.size() + 1])};
  }
  Refusal other_version(Version theirs) const {
    return {Fault::version_mismatch, peer_name_ + " speaks version " + theirs.text() + " of the wire format, and " +
                                         my_name() + " version " + me_.wire_version.text()};
  }

  void read_refusal(ConstBytes message) {
    auto const said = version_of(message);
    if (!proved_ && said.major != me_.wire_version.major) return give_up(other_version(said));
    auto from        = Reader{message.subspan(prefix_bytes)};
    auto const fault = detail::fault_of(from.number<std::uint8_t>());
    auto const size  = from.number<std::uint8_t>();
    from.number<std::uint16_t>();
    if (!proved_ || !fault || !proves(message, Label::refuse)) return give_up(no_common_secret(message));
    if (size != 0) give_up({*fault, from.text(size)});
    else give_up({*fault, peer_name_ + " refuses " + my_name() + " and does not say why"});
  }

  Mac proof(std::string_view label, ConstBytes said) const {
    if (!has_secret()) return {};
    auto data = std::array<std::byte, Label::server.size() + sizeof transcript_ + buffer_bytes>{};
    auto all  = Writer{data};
    all.text(label);
    all.bytes(transcript_);
    all.bytes(said);
    return hmac_sha256(secret_->bytes(), ConstBytes{data}.first(all.size()));
  }

  Identity me_;
  Secret const* secret_;
  Message expected_;
  std::string peer_name_;
  Identity peer_{};
  std::optional<Version> theirs_{};
  State state_ = State::talking;
  bool proved_ = false;
  Refusal refusal_{};
  std::array<std::byte, hello_bytes + server_bytes - sizeof(Mac)> transcript_{};
  std::array<std::byte, buffer_bytes> in_{}, out_{};
  std::size_t in_size_ = 0, out_size_ = 0, sent_ = 0;
};

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
    return gather(in, [&](ConstBytes message) { hello_came_ ? on_client_auth(message) : on_client_hello(message); });
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
