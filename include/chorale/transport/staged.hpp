// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/transport/common/pending_table.hpp>
#include <chorale/transport/transport.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// Copies bytes between the host and a device memory that a transport does not reach.
///
/// keeps   each function returns when its copy is complete
template <class C>
concept Copies = std::copyable<C> && requires(C copy, typename C::block& block, ConstBytes from, Bytes to,
                                              std::byte const* address, std::size_t bytes) {
  { C::memory } -> std::convertible_to<Memory>;                 // of the device
  { copy.holds(address) } -> std::same_as<bool>;                // true if it is an address of that memory
  { copy.allocate(bytes) } -> std::same_as<typename C::block>;  // host memory that is fast to copy: pinned
  { block.data() } -> std::convertible_to<std::byte*>;
  { copy.to_host(to, from) } -> std::same_as<void>;  // `to` on the host, `from` on the device
  { copy.from_host(to, from) } -> std::same_as<void>;
};

/// Copies of a program without device memory: there is nothing to copy.
struct NoCopies {
  using block = std::vector<std::byte>;

  static constexpr Memory memory = Memory::host;

  static bool holds(std::byte const*) { return false; }
  static block allocate(std::size_t bytes) { return block(bytes); }
  static void to_host(Bytes, ConstBytes) {}
  static void from_host(Bytes, ConstBytes) {}
};

static_assert(Copies<NoCopies>);

/// One rank of a Staged transport: messages in device memory are copied through host memory, others are not.
///
/// keeps   it may be moved, but not destroyed, while operations are in flight
/// cost    one copy on each side. A block of host memory for each message in flight at a time, as large as the largest
///         message that it has held; blocks are kept, so that nothing is allocated once they have grown
template <Endpoint E, Copies C> class StagedEndpoint {
  class State;

 public:
  using pending = TablePending<State>;

  StagedEndpoint(E at, C copy) : state_{std::make_unique<State>(std::move(at), std::move(copy))} {}

  Rank rank() const { return state_->at.rank(); }
  int size() const { return state_->at.size(); }

  pending send(Rank peer, Tag tag, ConstBytes out) {
    return start(out, [&](ConstBytes bytes) { return state_->at.send(peer, tag, bytes); });
  }
  pending recv(Rank peer, Tag tag, Bytes in) {
    return start(in, [&](Bytes bytes) { return state_->at.recv(peer, tag, bytes); });
  }

  void all_reduce(Span<float> x, Op op) requires requires(E& at) { at.all_reduce(x, op); } {
    auto const bytes = std::as_writable_bytes(x);
    if (!state_->copy.holds(bytes.data())) return state_->at.all_reduce(x, op);
    auto const ticket  = state_->stage(bytes.size());
    auto const on_host = Bytes{state_->under_way[ticket].block.data(), bytes.size()};
    state_->copy.to_host(on_host, bytes);
    state_->at.all_reduce({reinterpret_cast<float*>(on_host.data()), x.size()}, op);
    state_->copy.from_host(bytes, on_host);
    state_->under_way.finish(ticket);
  }

  void announce(Operation const& operation) { chorale::announce(state_->at, operation); }
  void announce(Operation const& operation, SubGroup const& group) requires KnowsSubGroups<E> {
    state_->at.announce(operation, group);
  }
  void begin_step(std::uint64_t step) { chorale::begin_step(state_->at, step); }
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { chorale::fail(state_->at, why, fault); }
  void listen(bool on) { chorale::listen(state_->at, on); }
  bool lost(Rank rank) const requires requires(E const& at) { at.lost(rank); } { return state_->at.lost(rank); }
  bool wait_any(std::chrono::nanoseconds longest) { return chorale::rest(state_->at, longest); }

 private:
  struct Item {
    typename E::pending pending;
    typename C::block block{};
    std::size_t capacity = 0;  // of the block
    Bytes to{};                // device memory of a receive
    C const* copy = nullptr;

    bool done() {
      if (!pending.done()) return false;
      land();
      return true;
    }
    void wait() {
      pending.wait();
      land();
    }
    void land() {
      if (!to.empty()) copy->from_host(to, {block.data(), to.size()});
    }
  };

  class State {
   public:
    State(E endpoint, C how) : at{std::move(endpoint)}, copy{std::move(how)} {}

    bool done(Ticket ticket) { return under_way.done(ticket); }
    void wait(Ticket ticket) {
      if (under_way.is_over(ticket)) return;
      under_way[ticket].wait();
      under_way.finish(ticket);
    }

    /// Returns a place with a block of at least that many bytes.
    Ticket stage(std::size_t bytes) {
      auto const ticket = under_way.take([&](Item const& item) { return item.capacity >= bytes; });
      auto& item        = under_way[ticket];
      if (item.capacity < bytes) {
        item.block    = copy.allocate(bytes);
        item.capacity = bytes;
      }
      item.to   = {};
      item.copy = &copy;
      return ticket;
    }

    E at;
    C copy;
    PendingTable<Item> under_way;
  };

  /// B   ConstBytes for a send, or Bytes for a recv; begin(bytes) starts that operation on the inner endpoint
  template <class B, class Begin> pending start(B bytes, Begin&& begin) {
    auto const staged = !bytes.empty() && state_->copy.holds(bytes.data());
    auto const ticket = state_->stage(staged ? bytes.size() : 0);
    auto& item        = state_->under_way[ticket];
    if (staged) {
      auto const on_host = Bytes{item.block.data(), bytes.size()};
      if constexpr (std::is_same_v<B, ConstBytes>) state_->copy.to_host(on_host, bytes);
      item.pending = begin(on_host);
      if constexpr (std::is_same_v<B, Bytes>) item.to = bytes;
    } else {
      item.pending = begin(bytes);
    }
    return {*state_, ticket};
  }

  std::unique_ptr<State> state_;
};

/// Any transport, with copies through host memory for a device memory that it does not reach. If T does, it is T.
///
///   Trainer{model, MirroredStrategy{gpus}, RingAllReduce{}, Staged<TcpTransport>{}}
///
/// C   copies between host and device; the default has nothing to copy
template <Transport T, Copies C = NoCopies> struct Staged {
  static constexpr bool is_free = T::reaches(C::memory);

  using endpoint = std::conditional_t<is_free, typename T::endpoint, StagedEndpoint<typename T::endpoint, C>>;

  T transport{};
  C copy{};

  static constexpr bool reaches(Memory memory) { return T::reaches(memory) || memory == C::memory; }

  std::vector<endpoint> connect(Group const& group) const {
    if constexpr (is_free) {
      return transport.connect(group);
    } else {
      auto staged = std::vector<endpoint>{};
      for (auto& at : transport.connect(group)) staged.emplace_back(std::move(at), copy);
      return staged;
    }
  }
};

}  // namespace chorale
