// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/transport/common/forwarding_endpoint.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace chorale {

/// An endpoint that counts what it sends. See Counting.
template <Endpoint E> class CountingEndpoint : public ForwardingEndpoint<E> {
 public:
  using pending = typename E::pending;
  using ForwardingEndpoint<E>::ForwardingEndpoint;

  Sent sent() const { return sent_; }

  pending send(Rank peer, Tag tag, ConstBytes out) {
    ++sent_.messages;
    sent_.bytes += out.size();
    return this->at_.send(peer, tag, out);
  }

  pending expose(Tag tag, Bytes mine) requires DirectAccessEndpoint<E> {
    ++sent_.messages;
    return this->at_.expose(tag, mine);
  }
  pending leave(Tag tag) requires DirectAccessEndpoint<E> {
    ++sent_.messages;
    return this->at_.leave(tag);
  }
  auto hold(std::size_t bytes) requires DirectAccessEndpoint<E> {
    sent_.bytes += bytes;
    return this->at_.hold(bytes);
  }

 private:
  Sent sent_;
};

/// Any transport, with counts of the messages and bytes that each rank sent, so that tests assert an algorithm's cost.
template <Transport T> struct Counting {
  using endpoint = CountingEndpoint<typename T::endpoint>;

  T transport{};

  static constexpr bool reaches(Memory memory) { return T::reaches(memory); }

  std::vector<endpoint> connect(Group const& group) const {
    auto counted = std::vector<endpoint>{};
    for (auto& at : transport.connect(group)) counted.emplace_back(std::move(at));
    return counted;
  }
};

}  // namespace chorale
