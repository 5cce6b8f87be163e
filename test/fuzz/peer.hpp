// SPDX-License-Identifier: Apache-2.0
//
// A peer that says anything: what a rank receives are the bytes of an input, and then the peer is gone.
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/transport/operation.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace chorale::test {

/// What one peer says: the bytes of an input, message after message.
class Says {
 public:
  Says() = default;
  explicit Says(ConstBytes in) : left_{in} {}

  bool has(std::size_t n) const { return n <= left_.size(); }
  bool over() const { return over_; }
  /// Takes the next message; a peer that has no more to say is gone.
  bool take(Bytes to) {
    over_ = over_ || !has(to.size());
    if (over_) return false;
    std::copy_n(left_.begin(), to.size(), to.begin());
    left_ = left_.subspan(to.size());
    return true;
  }

 private:
  ConstBytes left_;
  bool over_ = false;
};

/// An endpoint whose peers say anything, and hear all that is sent to them.
///
/// order   what a peer says is divided among receives in their order, whatever their tags
class StrangeEndpoint {
 public:
  /// Runs on every message that arrives, e.g. to make a header one that a peer would know how to write.
  using Forge = void (*)(Bytes message, Rank peer);

  class pending {
   public:
    pending() = default;
    explicit pending(Rank lost) : lost_{lost} {}
    bool done() {
      if (lost_ >= 0) throw PeerLost{lost_, "rank " + std::to_string(lost_) + " has no more to say."};
      return true;
    }
    void wait() { done(); }

   private:
    Rank lost_ = -1;
  };

  /// in   two bytes, the length of what the first peer says; then what each of two peers says
  StrangeEndpoint(Rank rank, int size, ConstBytes in, Forge forge = nullptr) : rank_{rank}, size_{size}, forge_{forge} {
    auto const head = in.first(std::min<std::size_t>(in.size(), 2));
    auto n          = std::size_t{0};
    for (auto const byte : head) n = n << 8 | std::to_integer<std::size_t>(byte);
    auto const rest  = in.subspan(head.size());
    auto const first = rest.first(size <= 2 ? rest.size() : std::min(n, rest.size()));
    says_            = {Says{first}, Says{rest.subspan(first.size())}};
  }

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  bool lost(Rank peer) const { return peer != rank_ && says(peer).over(); }
  pending send(Rank peer, Tag, ConstBytes) { return lost(peer) ? pending{peer} : pending{}; }
  pending recv(Rank peer, Tag, Bytes in) {
    if (!says_[index(peer)].take(in)) return pending{peer};
    if (forge_ != nullptr) forge_(in, peer);
    return {};
  }
  bool wait_any(std::chrono::nanoseconds) { return true; }

 private:
  std::size_t index(Rank peer) const {
    must(peer != rank_ && peer >= 0 && peer < size_, "a message to no peer");
    return static_cast<std::size_t>(peer < rank_ ? peer : peer - 1) % says_.size();
  }
  Says const& says(Rank peer) const { return says_[index(peer)]; }

  Rank rank_;
  int size_;
  Forge forge_;
  std::array<Says, 2> says_;
};

/// The group of a layer whose other rank says anything.
class StrangeGroup {
 public:
  explicit StrangeGroup(ConstBytes in) : says_{in} {}

  AxisGroup group(std::string_view name) {
    return {.name = name, .rank = 0, .size = 2, .send_and_receive = &exchange, .peers = this, .deals_rows = true};
  }

 private:
  static void exchange(void* self, Rank, ConstBytes, Rank, Bytes in) {
    if (!in.empty() && !static_cast<StrangeGroup*>(self)->says_.take(in))
      throw PeerLost{1, "rank 1 has no more to say."};
  }

  Says says_;
};

/// Calls f; nothing but an error of the library may come out of it.
template <class F> void may_refuse(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    must(std::string_view{error.what()}.starts_with("chorale: "), "an error that does not say whose it is");
  }
}

}  // namespace chorale::test
