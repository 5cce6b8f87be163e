// SPDX-License-Identifier: Apache-2.0
//
// Progress engine of mpi.hpp; empty where the compiler does not find MPI.
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/cores.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/operation_check.hpp>
#include <chorale/transport/common/pending_table.hpp>
#include <chorale/transport/mpi/control_channel.hpp>
#include <chorale/transport/mpi/init.hpp>
#include <chorale/transport/wire/frame.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<mpi.h>)

namespace chorale::mpi {

/// The communicator of one MpiEndpoint's messages, and the operations under way on it.
///
///   a message   | header 64 | its first 1984 bytes |   | piece |   | piece |   | rest |     each |..| is one of MPI's
///
/// The header is as in docs/55-wire.md: it has the message's operation and length. Pieces are sent straight from
/// memory to memory.
class ProgressEngine {
 public:
  using Pending = TablePending<ProgressEngine>;

  ProgressEngine(MPI_Comm communicator, std::size_t piece, std::chrono::nanoseconds timeout)
      : control{communicator, [this] { cancel_receives(); }}, data{duplicate(communicator)}, piece_{piece},
        timeout_{timeout} {
    int* highest = nullptr;
    int found    = 0;
    MPI_Comm_get_attr(data, MPI_TAG_UB, &highest, &found);
    while (found && tags_ <= static_cast<std::uint32_t>(*highest) / 2) tags_ *= 2;
    count_cores();
  }

  ~ProgressEngine() {
    int over = 0;
    MPI_Finalized(&over);
    if (over) return;
    cancel_receives();
    if (!control.is_lost()) MPI_Comm_free(&data);  // else what is left goes to the next one
  }
  ProgressEngine(ProgressEngine const&)            = delete;
  ProgressEngine& operator=(ProgressEngine const&) = delete;

  Pending send(Rank peer, Tag tag, ConstBytes out) {
    auto const ticket = take(Kind::send, peer, tag, {const_cast<std::byte*>(out.data()), out.size()});
    auto& item        = under_way_[ticket];
    auto const begin  = item.piece(0);
    wire::write(header_of(item), Bytes{item.first}.first<wire::header_bytes>());
    if (begin.size() != 0) std::memcpy(item.first.data() + wire::header_bytes, out.data(), begin.size());
    start(item, 0, MPI_Isend, Bytes{item.first}.first(wire::header_bytes + begin.size()));
    for (std::size_t i = 1; i < item.requests.size(); ++i) start(item, i, MPI_Isend, item.memory(i));
    return {*this, ticket};
  }

  Pending recv(Rank peer, Tag tag, Bytes in) {
    auto const ticket = take(Kind::recv, peer, tag, in);
    auto& item        = under_way_[ticket];
    start(item, 0, MPI_Irecv, item.first);  // always large enough for a first part
    for (std::size_t i = 1; i < item.requests.size(); ++i) start(item, i, MPI_Irecv, item.memory(i));
    return {*this, ticket};
  }

  bool done(Ticket ticket) {
    control.throw_if_lost();
    if (under_way_.done(ticket)) return true;
    if (++looks_ % 256 == 0) control.listen();
    return false;
  }

  void wait(Ticket ticket) {
    auto patience = Backoff{spins_};
    auto deadline = Deadline::never(), ask = Deadline::never();
    while (!done(ticket)) {
      patience.pause();
      if (!patience.slow()) continue;
      control.listen();
      if (deadline.at == Deadline::never().at) {
        deadline = Deadline::after(timeout_);
        ask      = Deadline::after(std::min<std::chrono::nanoseconds>(timeout_ / 2, std::chrono::milliseconds{50}));
      }
      if (ask.passed()) {
        control.send_position(under_way_[ticket].peer);
        ask = Deadline::never();
      }
      if (deadline.passed()) give_up(under_way_[ticket]);
    }
  }

  ControlChannel control;  // first: it has this rank's number
  MPI_Comm data;

 private:
  enum class Kind { send, recv };

  static constexpr std::size_t carried = 2048 - wire::header_bytes;  // bytes that come with the header: sent eagerly

  struct Item {
    ProgressEngine* state = nullptr;
    Kind kind             = Kind::send;
    Rank peer             = 0;
    detail::PostedReceive message{};      // `left` is all of it; of a send, only read
    std::size_t next = 0;                 // the first piece that is not complete
    std::vector<std::byte> first{};       // header, and the bytes sent with it
    std::vector<MPI_Request> requests{};  // one for each piece

    Range piece(std::size_t i) const {
      auto const begin = i == 0 ? 0 : carried + (i - 1) * state->piece_;
      return {begin, std::min(i == 0 ? carried : begin + state->piece_, message.size)};
    }
    Bytes memory(std::size_t i) const { return message.left.subspan(piece(i).begin, piece(i).size()); }

    bool done() {
      for (; next < requests.size(); ++next) {
        int flag    = 0;
        auto status = MPI_Status{};
        state->expect_peer(MPI_Test(&requests[next], &flag, &status), *this);
        if (!flag) return false;
        if (kind == Kind::recv) state->arrived(*this, status);
      }
      return true;
    }
  };

  Ticket take(Kind kind, Rank peer, Tag tag, Bytes memory) {
    control.throw_if_lost();
    auto const ticket = under_way_.take();
    control.throw_if_lost();  // take() may find a loss: no receive then
    auto& item      = under_way_[ticket];
    auto requests   = std::move(item.requests);
    auto first      = std::move(item.first);
    auto const rest = memory.size() - std::min(carried, memory.size());
    requests.assign(1 + rest / piece_ + (rest % piece_ != 0), MPI_REQUEST_NULL);
    first.resize(wire::header_bytes + carried);
    item = {this,
            kind,
            peer,
            {tag, control.announced().of(tag), memory, memory.size()},
            0,
            std::move(first),
            std::move(requests)};
    return ticket;
  }

  template <class Begin> void start(Item& item, std::size_t i, Begin begin, Bytes bytes) {
    expect_peer(begin(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, item.peer, fold(item.message.tag), data,
                      &item.requests[i]),
                item);
  }

  wire::Header header_of(Item const& item) const {
    auto head   = control.header_of(item.message.announced);
    head.to     = item.peer;
    head.tag    = item.message.tag;
    head.length = item.message.size;
    if (head.sequence == 0) head.count = head.length;
    return head;
  }

  /// Maps a tag to one of MPI's. Tags that differ modulo 64 still differ: the number of MPI's tags is a power of two,
  /// 32768 at least.
  int fold(Tag tag) const { return static_cast<int>(static_cast<std::uint32_t>(tag) % tags_); }

  void count_cores() {
    auto here = MPI_COMM_NULL;
    int ranks = 0;
    expect_mpi(MPI_Comm_split_type(data, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
    MPI_Comm_size(here, &ranks);
    MPI_Comm_free(&here);
    if (ranks > host_cores()) spins_ = 20;
  }

  /// Checks a piece that has arrived: the first must begin the expected message, the others must have their lengths.
  void arrived(Item& item, MPI_Status const& status) {
    int got = 0;
    MPI_Get_count(&status, MPI_BYTE, &got);
    auto const bytes = static_cast<std::size_t>(got);
    guarded(item, [&] {
      if (item.next == 0) return open(item, bytes);
      if (bytes != item.piece(item.next).size()) throw other_pieces();
    });
  }

  void open(Item& item, std::size_t bytes) const {
    auto const came   = ConstBytes{item.first}.first(bytes);
    auto const parsed = wire::parse(came, std::numeric_limits<std::uint64_t>::max());
    auto const& head  = parsed.header;
    if (parsed.result != wire::Parse::ok || bytes != wire::header_bytes + std::min(carried, head.length))
      throw detail::ConnectionFault{Fault::frame_corrupt, "a message from it does not begin like one"};
    if (head.tag != item.message.tag) detail::throw_mismatch({control.rank, item.peer}, head, item.message.announced);
    detail::expect_same({control.rank, item.peer}, item.message, head, head.length, false);
    if (bytes != wire::header_bytes)
      std::memcpy(item.message.left.data(), came.data() + wire::header_bytes, bytes - wire::header_bytes);
  }

  static detail::ConnectionFault other_pieces() {
    return {Fault::collective_mismatch, "a message came in other pieces than expected: MpiTransport::piece differs"};
  }

  void expect_peer(int code, Item const& item) {
    if (code == MPI_SUCCESS) return;
    guarded(item, [&] {
      auto kind = 0;
      MPI_Error_class(code, &kind);
      if (kind == MPI_ERR_TRUNCATE) throw other_pieces();
      try {
        expect_mpi(code, "MPI");
      } catch (Error const& error) { throw detail::ConnectionFault{Fault::peer_lost, error.what()}; }
    });
  }

  template <class F> void guarded(Item const& item, F f) {
    try {
      f();
    } catch (detail::ConnectionFault const& fault) { control.lose(item.peer, fault, text_of(item)); }
  }

  [[noreturn]] void give_up(Item const& item) {
    auto const limit  = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    auto const reason = "rank " + std::to_string(control.rank) + " waited " + std::to_string(limit) + " ms for it";
    control.lose(item.peer, {Fault::peer_stalled, reason}, text_of(item));
  }

  static std::string text_of(Item const& item) {
    if (item.message.announced.sequence != 0) return item.message.announced.operation.text();
    return std::string{item.kind == Kind::recv ? "recv" : "send"} + ", tag " +
           std::to_string(static_cast<std::uint32_t>(item.message.tag));
  }

  /// Cancels all receives, so that no message is written to memory that its owner has released, except one that has
  /// arrived in part. Memory for a first part that MPI may still use is never freed.
  void cancel_receives() {
    static auto& kept = *new std::vector<std::vector<std::byte>>;
    under_way_.each([](Item& item) {
      if (item.kind == Kind::recv)
        for (auto i = item.next; i < item.requests.size(); ++i) cancel(item.requests[i]);
      if (item.next == 0) kept.push_back(std::move(item.first));
      return item.kind == Kind::recv;
    });
  }

  /// Without a look at the result: of a message that is too large, MPICH 4.0 raises an error on MPI_COMM_WORLD then.
  static void cancel(MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }

  std::size_t piece_;
  std::chrono::nanoseconds timeout_;
  std::uint32_t tags_ = 32'768;
  int spins_          = 2'000;
  unsigned looks_     = 0;  // unsuccessful polls
  PendingTable<Item> under_way_;
};

}  // namespace chorale::mpi

#endif
