// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<openssl/evp.h>)
#error \
    "chorale: <openssl/evp.h> is not on the include path. Try: apt-get install libssl-dev (Debian), dnf \
install openssl-devel (Fedora), brew install openssl@3 (Homebrew) or vcpkg install openssl"
#endif

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_TCP)
#error \
    "chorale: this header is of the component tcp. Try: add chorale::tcp to target_link_libraries(), or \
chorale-tcp to pkg-config"
#endif

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

/// Cryptographic functions for handshake and frames, from OpenSSL.
namespace chorale::wire {

using Nonce = std::array<std::byte, 32>;  // a number that is used once
using Mac   = std::array<std::byte, 32>;  // only a holder of the key can make it
using Key   = std::array<std::byte, 32>;

namespace detail {

inline unsigned char const* chars(ConstBytes bytes) { return reinterpret_cast<unsigned char const*>(bytes.data()); }
inline unsigned char* room(Bytes bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace detail

/// Returns a random nonce. Throws Error when the system has no random numbers.
inline Nonce fresh_nonce() {
  auto nonce = Nonce{};
  CHORALE_ENSURES(RAND_bytes(detail::room(nonce), static_cast<int>(nonce.size())) == 1, "no random numbers");
  return nonce;
}

/// source  RFC 2104, over SHA-256
inline Mac hmac_sha256(ConstBytes key, ConstBytes data) {
  auto mac  = Mac{};
  auto size = 0U;
  CHORALE_ENSURES(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), detail::chars(data), data.size(),
                       detail::room(mac), &size) != nullptr &&
                      size == mac.size(),
                  "HMAC-SHA256 failed");
  return mac;
}

/// Returns the first 32 bytes of HKDF's output.
///
/// info    purpose of the key; at most 128 bytes
/// source  RFC 5869, over SHA-256
inline Key hkdf_sha256(ConstBytes secret, ConstBytes salt, ConstBytes info) {
  auto last = std::array<std::byte, 129>{};
  CHORALE_EXPECTS(info.size() < last.size(), std::to_string(info.size()) + " bytes of info for a key");
  *std::ranges::copy(info, last.begin()).out = std::byte{1};  // the number of the first block
  auto const extracted                       = hmac_sha256(salt, secret);
  return hmac_sha256(extracted, ConstBytes{last}.first(info.size() + 1));
}

/// True if the bytes are equal; the time that it takes does not depend on where they differ.
inline bool same(ConstBytes a, ConstBytes b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

/// Returns a value for Identity::plan_hash: the SHA-256 of all lines, each with a line break. Needs -lcrypto.
inline std::array<std::byte, 32> plan_hash(Span<std::string const> lines) {
  auto text = std::string{};
  for (auto const& line : lines) text += line + "\n";
  auto hash = std::array<std::byte, 32>{};
  SHA256(reinterpret_cast<unsigned char const*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

}  // namespace chorale::wire
