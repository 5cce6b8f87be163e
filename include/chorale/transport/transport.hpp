// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/transport/common/told_error.hpp>
#include <chorale/transport/operation.hpp>

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace chorale {

/// How the ranks of a job find and identify each other. A transport takes from it what its own options leave open.
///
/// addresses      where each rank listens, in the order of ranks; empty where the transport needs none
/// no_addresses   why there are none, as a sentence, for transports that need them
/// meets_at       if unknown, rank 0's address: rank r listens on this port + r, the rendezvous is at this port + size
/// spare_ports    not 0: nobody has chosen the ports, and if others have them, ranks listen up to so many higher, which
///                a rendezvous tells them, also where addresses are known
/// job            the same on all ranks; empty: the transport's own default
/// incarnation    how often the job was started again
/// lines          what ranks must agree on besides the model, such as the members of the job
struct RendezvousInfo {
  std::vector<std::string> addresses{};
  std::string no_addresses{};
  std::string meets_at{};
  int spare_ports = 0;
  std::string job{};
  std::uint32_t incarnation = 0;
  std::vector<std::string> lines{};
  int ranks_per_process = 1;
};

/// The ranks of a job, and which of them live in this process.
class Group {
 public:
  /// A group of n ranks, all threads of this process.
  static Group all_local(int n) {
    auto local = std::vector<Rank>{};
    for (Rank rank = 0; rank < n; ++rank) local.push_back(rank);
    return Group{n, std::move(local)};
  }

  /// size    ranks in the job, at least 1
  /// local   ranks that live in this process, ascending
  /// throws  BadArgument when size is less than 1, or local ranks are not in the job or out of order
  Group(int size, std::vector<Rank> local, RendezvousInfo meeting = {})
      : size_{size}, local_{std::move(local)}, meeting_{std::move(meeting)} {
    CHORALE_EXPECTS(size >= 1, "a group needs at least one rank, got " + std::to_string(size));
    for (std::size_t i = 0; i < local_.size(); ++i)
      CHORALE_EXPECTS(
          local_[i] >= 0 && local_[i] < size && (i == 0 || local_[i - 1] < local_[i]),
          "rank " + std::to_string(local_[i]) + " is out of order, or not in a group of " + std::to_string(size));
  }

  int size() const { return size_; }
  std::vector<Rank> const& local() const { return local_; }
  bool is_all_local() const { return local_.size() == static_cast<std::size_t>(size_); }
  RendezvousInfo const& meeting() const { return meeting_; }

 private:
  int size_;
  std::vector<Rank> local_;
  RendezvousInfo meeting_;
};

/// One rank's live connections. Moves bytes between ranks; has never heard of tensors or gradients.
///
/// keeps   used by one thread at a time; any number of operations may be in flight, up to the transport's bound
/// order   messages with one tag between two ranks arrive in the order sent, and go to receives in the order posted,
///         whichever of these is looked at first; other tags may overtake them
/// throws  PeerLost from any operation and any wait when a rank of the group is gone; Disagreement, or another Error,
///         when the two ends of one message differ in size
///
/// Everything else is optional. OptionalCallsFit refuses a member of one of the first six names that cannot be called
/// like this:
///
///   | member of an endpoint              | what it adds, and where                    | without it               |
///   | ---------------------------------- | ------------------------------------------ | ------------------------ |
///   | announce(operation)                | compares what ranks call: announce()       | nothing is compared      |
///   | begin_step(step)                   | the step in errors: begin_step()           | errors name no step      |
///   | fail(why)                          | tells the other ranks: fail()              | they wait until a timeout |
///   | wait_any(longest) -> bool          | sleeps until a message moves: rest()       | yields, and looks again  |
///   | lost(peer) -> bool                 | continues without a lost rank: Spares      | no parameter servers     |
///   | close()                            | compares all operations at the end: close() | nothing is compared     |
///   | announce(operation, group)         | operations of some ranks: KnowsSubGroups   | SubEndpoint sends as one |
///   | expose, peer, leave, hold          | DirectAccessEndpoint                       | no DirectAllReduce       |
///   | memory, memory_of, lost, hold      | ReadsInPlace                               | servers get messages     |
///   | copies, copies_of, next_half, meet | MeetingEndpoint                            | no CopiedAllReduce       |
///   | run, wake_all                      | RunsItsRanks                               | each rank has a thread   |
///   | all_reduce, reduce_scatter, all_gather | CollectiveEndpoint                     | no NativeAllReduce       |
///   | sent() / now()                     | Replica::sent(), now()                     | neither is there         |
///   | listen(on)                         | frees the address for another job: listen() | it stays taken          |
template <class E>
concept Endpoint = Pending<typename E::pending> && requires(E& at, Rank peer, Tag tag, ConstBytes out, Bytes in) {
  { at.rank() } -> std::same_as<Rank>;                               // in [0, size())
  { at.size() } -> std::same_as<int>;                                // ranks in the group, at least 1
  { at.send(peer, tag, out) } -> std::same_as<typename E::pending>;  // done: `out` may be reused
  { at.recv(peer, tag, in) } -> std::same_as<typename E::pending>;   // done: `in` holds the peer's bytes
};

/// Endpoints whose optional members the library can call: one that is there has the parameters and the result of the
/// table at Endpoint. Otherwise the library would take it for absent, and nobody would see it.
template <class E>
concept OptionalCallsFit =
    (!requires { &E::announce; } || requires(E& at, Operation const& operation) { at.announce(operation); }) &&
    (!requires { &E::begin_step; } || requires(E& at, std::uint64_t step) { at.begin_step(step); }) &&
    (!requires { &E::fail; } || requires(E& at, std::string const& why) { at.fail(why); }) &&
    (!requires { &E::wait_any; } ||
     requires(E& at, std::chrono::nanoseconds longest) { { at.wait_any(longest) } -> std::same_as<bool>; }) &&
    (!requires { &E::lost; } || requires(E& at, Rank peer) { { at.lost(peer) } -> std::same_as<bool>; }) &&
    (!requires { &E::close; } || requires(E& at) { at.close(); });

/// An endpoint whose ranks read and write each other's memory in place. See LocalTransport, DirectAllReduce.
///
/// Between the end of expose() and the start of leave(), each rank may touch what all others exposed, during a hold().
///
/// keeps   every rank exposes the same tags in the same order, and the same number of bytes under each
template <class E>
concept DirectAccessEndpoint = Endpoint<E> && requires(E& at, Rank peer, Tag tag, Bytes mine, std::size_t bytes) {
  { at.expose(tag, mine) } -> std::same_as<typename E::pending>;  // done: every rank has exposed this tag
  { at.peer(peer, tag) } -> std::same_as<Bytes>;                  // what that rank exposed
  { at.leave(tag) } -> std::same_as<typename E::pending>;         // done: every rank has left; `mine` may be reused
  at.hold(bytes);                                                 // while it lives, peers' memory is not freed
};

/// An endpoint that lets a rank read data stored in another rank's memory(), at a place that a message has sent. See
/// SharedMemoryTransport, parameter_server::Client.
///
/// keeps   memory_of() outlives the other rank's process. It is read after the other rank has allowed it, during a
///         hold() in which the reader has then seen that the other rank is not lost
template <class E>
concept ReadsInPlace = Endpoint<E> && requires(E& at, Rank peer, std::size_t bytes) {
  { at.memory() } -> std::same_as<Bytes>;
  { at.memory_of(peer) } -> std::same_as<ConstBytes>;
  { at.lost(peer) } -> std::same_as<bool>;
  at.hold(bytes);
};

/// An endpoint whose ranks copy data to memory that all others can read. See CopiedAllReduce.
///
/// keeps   copies() has the same number of bytes on all ranks, and two halves, so that one can be written while the
///         other is read. A rank reads a half after a `meet()` that the writer called after it wrote. The writer writes
///         it again after the next `meet()`, which the readers call after they have read
template <class E>
concept MeetingEndpoint = Endpoint<E> && requires(E& at, Rank peer, Tag tag) {
  { at.copies() } -> std::same_as<Bytes>;
  { at.copies_of(peer) } -> std::same_as<ConstBytes>;
  { at.next_half() } -> std::same_as<unsigned>;  // 0, 1, 0, ..; the same on all ranks
  at.meet(tag);                                  // returns when all have called it equally often
};

/// An endpoint whose ranks are not threads: the transport runs a body on each of them, in turns, in the calling thread.
///
/// all     endpoints of one group, in the order of ranks
/// keeps   run() returns when all ranks have ended, with the exception that each threw, or null
template <class E>
concept RunsItsRanks = Endpoint<E> && requires(std::vector<E>& all, void (*body)(E&), E& at) {
  { E::run(all, body) } -> std::same_as<std::vector<std::exception_ptr>>;
  at.wake_all();  // ends rest() on all ranks, as a message would
};

/// A way to connect ranks. A plain value until connect(), so that it can be copied and printed.
template <class T>
concept Transport = Endpoint<typename T::endpoint> && requires(T transport, Group const& group) {
  { T::reaches(Memory::cuda) } -> std::same_as<bool>;  // true if it can read and write that memory
  { transport.connect(group) } -> std::same_as<std::vector<typename T::endpoint>>;  // one per local rank
};

/// A transport with native collectives, e.g. NCCL. NativeAllReduce requires this.
template <class T>
concept CollectiveTransport =
    Transport<T> && requires(typename T::endpoint& at, Span<float> x, Op op) { at.all_reduce(x, op); };

/// An endpoint with the collectives that make an all-reduce of two layers, for elements T. See HierarchicalAllReduce.
///
/// keeps   every rank calls the same collectives in the same order; each returns when its result is available
template <class E, class T>
concept CollectiveEndpoint = Endpoint<E> && requires(E& at, Span<T const> in, Span<T> out, Op op) {
  at.all_reduce(out, op);          // in place
  at.reduce_scatter(in, out, op);  // out: the rank-th of size() equal parts of the sum
  at.all_gather(in, out);          // in: the rank-th of size() equal parts of out
};

/// A transport that can read and write the memory of the strategy's device.
template <class T, class S> concept Reaches = Transport<T> && requires { requires T::reaches(S::device::memory); };

/// Announces the operation that messages with operation.tag belong to, until the tag is announced again. Called once by
/// every rank for every collective operation, in the same order, before its first message.
///
/// keeps   a transport with announce() numbers the operations as they are announced, sends number and fingerprint
///         with every message, and compares them before it touches data: it throws Disagreement where ranks differ
template <Endpoint E> void announce(E& at, Operation const& operation) {
  if constexpr (requires { at.announce(operation); }) at.announce(operation);
}

/// Some ranks of an endpoint, which have operations among themselves. See SubEndpoint.
///
/// ranks   numbers in the endpoint, in the order of the group
/// id      fingerprint_of(ranks), which is never 0
struct SubGroup {
  Span<Rank const> ranks;
  std::uint32_t id;
};

/// An endpoint that supports operations of sub-groups.
template <class E>
concept KnowsSubGroups = Endpoint<E> && requires(E& at, Operation const& operation, SubGroup const& group) {
  at.announce(operation, group);
};

/// Announces the operation of a sub-group that messages with operation.tag between its ranks belong to. Called once by
/// every rank of the group, and by no other, for every collective operation of the group, in the same order.
///
/// operation   its root is numbered as in the group; its arguments include the group, see within()
/// keeps       a transport with such an announce() numbers the operations of each group separately, from 1, whatever
///             other groups announce in between; it finds the operation of a message by tag and peer, because two
///             groups that have no pair of ranks in common may use one tag; and it compares number, fingerprint and
///             group before it touches data. A transport without it compares nothing of these operations
template <Endpoint E> void announce(E& at, Operation const& operation, SubGroup const& group) {
  if constexpr (KnowsSubGroups<E>) at.announce(operation, group);
}

/// Returns the operation as one of a sub-group: its arguments then include the group, so that ranks must agree on it.
constexpr Operation within(SubGroup const& group, Operation operation) {
  auto const both     = std::array{group.id, operation.arguments};
  operation.arguments = operation.arguments == 0 ? group.id : fingerprint_of(both);
  return operation;
}

/// Announces the training step that begins, which errors and heartbeats report.
template <Endpoint E> void begin_step(E& at, std::uint64_t step) {
  if constexpr (requires { at.begin_step(step); }) at.begin_step(step);
}

/// Reports to the other ranks that this rank has failed, if the transport can.
///
/// fault   that the others throw, where the loss of a rank concerns all: of Fault::numeric_fault a NumericFault, ..
/// keeps   when it returns, no other rank touches the memory of this one any more
template <Endpoint E> void fail(E& at, std::string const& why, [[maybe_unused]] Fault fault = Fault::peer_lost) {
  if constexpr (requires { at.fail(why, fault); }) at.fail(why, fault);
  else if constexpr (requires { at.fail(why); }) at.fail(why);
}

/// Reports an error of this rank to the others, which throw one of the same type and sentence.
template <Endpoint E> void fail(E& at, std::exception const& error) {
  auto const fault = fault_of(error);
  fail(at, detail::told_text(error.what(), fault), fault);
}

/// Stops to listen on the address of this rank, so that a job that follows can, or listens again. For an endpoint whose
/// ranks have all joined: its connections stay.
template <Endpoint E> void listen(E& at, bool on) {
  if constexpr (requires { at.listen(on); }) at.listen(on);
}

/// Waits until any message may have moved, or a rank is lost; false if the time is over first. For a thread that serves
/// many ranks, between two rounds of done(). If the transport has no wait_any(), it only yields to other threads.
template <Endpoint E> bool rest(E& at, std::chrono::nanoseconds longest) {
  if constexpr (requires { at.wait_any(longest); }) return at.wait_any(longest);
  std::this_thread::yield();
  return true;
}

}  // namespace chorale
