// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/wire/codec.hpp>
#include <chorale/transport/wire/crypto.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace chorale::wire {

/// Protection of frames in transit. See Plain, Sealed.
///
/// header  the bytes of the frame's header, as sent: protected, but not encrypted
/// tag     P::tag_bytes, which follow the payload
/// order   each end opens the frames of the other in the order in which they were sealed
template <class P>
concept Protection = requires(P p, ConstBytes header, ConstBytes payload, Bytes room,
                              std::span<std::byte, P::tag_bytes> tag, std::span<std::byte const, P::tag_bytes> came) {
  { p.seal(header, payload, room, tag) } -> std::same_as<ConstBytes>;  // to send; `room` is as large as payload
  { p.open(header, room, came) } -> std::same_as<bool>;                // in place; false: close the connection
};

/// No protection but the checksums of the frames, for trusted networks. Costs nothing.
struct Plain {
  static constexpr std::size_t tag_bytes = 0;

  ConstBytes seal(ConstBytes, ConstBytes payload, Bytes, std::span<std::byte, 0>) const { return payload; }
  bool open(ConstBytes, Bytes, std::span<std::byte const, 0>) const { return true; }
};

/// An end of a connection. The two ends never seal with the same key.
enum class End { dialer, acceptor };

/// Key of one end of a connection: the session key, and the end, which selects the half of it to seal with.
struct EndKey {
  Key session;
  End end;
};

/// Protection by AES-128-GCM: an attacker cannot read frames, nor change, repeat, drop or reorder them unnoticed.
///
/// bytes_per_key  after so many, a new key is derived from the last one. 2^36 keep an attacker's advantage below 2^-60
/// keeps          one key for each direction, and never the same nonce twice under a key; after the first frame that
///                does not open, none does; the bytes of a frame that does not open are wiped
/// cost           one pass over the payload with AES instructions; no allocation after the constructor
/// throws         Error when OpenSSL fails
/// source         NIST SP 800-38D, with counted nonces; limits as in RFC 8446, section 5.5
class Sealed {
 public:
  static constexpr std::size_t tag_bytes = 16;

  Sealed(Key const& session_key, End end, std::uint64_t bytes_per_key = std::uint64_t{1} << 36)
      : out_{half(session_key, end), 1, bytes_per_key},
        in_{half(session_key, end == End::dialer ? End::acceptor : End::dialer), 0, bytes_per_key} {}

  ConstBytes seal(ConstBytes header, ConstBytes payload, Bytes room, std::span<std::byte, tag_bytes> tag) {
    CHORALE_EXPECTS(room.size() >= payload.size(), "there is room for " + std::to_string(room.size()) + " of " +
                                                       std::to_string(payload.size()) + " bytes to seal");
    CHORALE_ENSURES(out_.begin(header, payload.size()) && out_.pass(payload, room.data()) && out_.end() &&
                        out_.control(EVP_CTRL_GCM_GET_TAG, tag.data()),
                    "AES-GCM cannot seal a frame");
    return room.first(payload.size());
  }

  bool open(ConstBytes header, Bytes payload, std::span<std::byte const, tag_bytes> tag) {
    auto expected = std::array<std::byte, tag_bytes>{};  // OpenSSL's call takes no const
    std::ranges::copy(tag, expected.begin());
    opens_ = opens_ && in_.begin(header, payload.size()) && in_.control(EVP_CTRL_GCM_SET_TAG, expected.data()) &&
             in_.pass(payload, payload.data()) && in_.end();
    if (!opens_) OPENSSL_cleanse(payload.data(), payload.size());
    return opens_;
  }

 private:
  static constexpr std::size_t key_bytes = 16;

  static ConstBytes half(Key const& key, End sender) {
    return ConstBytes{key}.subspan(sender == End::dialer ? 0 : key_bytes, key_bytes);
  }

  /// Cipher for the frames of one direction.
  class Direction {
   public:
    Direction(ConstBytes key, int seals, std::uint64_t bytes_per_key)
        : cipher_{EVP_CIPHER_CTX_new()}, seals_{seals}, bytes_per_key_{bytes_per_key} {
      CHORALE_ENSURES(cipher_ && EVP_CipherInit_ex(cipher_.get(), EVP_aes_128_gcm(), nullptr, nullptr, nullptr, seals),
                      "AES-GCM cannot start");
      std::ranges::copy(key, key_.begin());
      CHORALE_ENSURES(use_key(), "AES-GCM does not take its key");
    }
    Direction(Direction&&) noexcept            = default;
    Direction& operator=(Direction&&) noexcept = default;
    ~Direction() { OPENSSL_cleanse(key_.data(), key_.size()); }

    /// Begins the next frame, with a nonce that this key has not used.
    bool begin(ConstBytes header, std::size_t size) {
      CHORALE_EXPECTS(size <= std::size_t{1} << 30, "a frame of " + std::to_string(size) + " bytes");
      if (bytes_ >= bytes_per_key_ && !next_key()) return false;
      bytes_ += header.size() + size;
      auto number = Nonce12{};
      auto to     = Writer{Bytes{number}.last(sizeof frames_)};
      to.number(frames_++);
      return EVP_CipherInit_ex(cipher_.get(), nullptr, nullptr, nullptr, detail::chars(number), seals_) == 1 &&
             pass(header, nullptr);
    }

    /// to      nullptr: the bytes are authenticated only, and not written
    bool pass(ConstBytes from, std::byte* to) {
      auto size = 0;
      return from.empty() || EVP_CipherUpdate(cipher_.get(), reinterpret_cast<unsigned char*>(to), &size,
                                              detail::chars(from), static_cast<int>(from.size())) == 1;
    }

    bool end() {
      auto none = std::array<unsigned char, key_bytes>{};
      auto size = 0;
      return EVP_CipherFinal_ex(cipher_.get(), none.data(), &size) == 1;
    }

    bool control(int what, std::byte* tag) {
      return EVP_CIPHER_CTX_ctrl(cipher_.get(), what, static_cast<int>(tag_bytes), tag) == 1;
    }

   private:
    using Nonce12 = std::array<std::byte, 12>;
    struct Free {
      void operator()(EVP_CIPHER_CTX* cipher) const { EVP_CIPHER_CTX_free(cipher); }
    };

    bool use_key() {
      return EVP_CipherInit_ex(cipher_.get(), nullptr, nullptr, detail::chars(key_), nullptr, seals_) == 1;
    }
    bool next_key() {
      auto next = hmac_sha256(key_, std::as_bytes(Span<char const>{std::string_view{"chorale 1 next k"}}));
      std::ranges::copy(ConstBytes{next}.first(key_bytes), key_.begin());
      OPENSSL_cleanse(next.data(), next.size());
      bytes_ = 0;
      return use_key();
    }

    std::unique_ptr<EVP_CIPHER_CTX, Free> cipher_;
    int seals_;
    std::uint64_t bytes_per_key_;
    std::uint64_t frames_ = 0, bytes_ = 0;
    std::array<std::byte, key_bytes> key_{};
  };

  Direction out_, in_;
  bool opens_ = true;
};

static_assert(Protection<Plain> && Protection<Sealed>);

}  // namespace chorale::wire
