// SPDX-License-Identifier: Apache-2.0
//
// What mpi.hpp is made of; empty where the compiler does not find MPI.
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/pending.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/in_flight.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if __has_include(<mpi.h>)
#include <mpi.h>

namespace chorale::detail {

/// throws  Error with MPI's own words when a call that has no peer did not succeed
inline void expect_mpi(int code, std::string const& call) {
  if (code == MPI_SUCCESS) return;
  auto text = std::array<char, MPI_MAX_ERROR_STRING>{};
  int size  = 0;
  MPI_Error_string(code, text.data(), &size);
  throw Error{call + " said: " + std::string(text.data(), static_cast<std::size_t>(size)) + "."};
}

/// Starts MPI unless the program has, and then ends it when the program does.
inline void start_mpi() {
  struct AtExit {
    ~AtExit() {
      int over = 0;
      MPI_Finalized(&over);
      if (!over) MPI_Finalize();
    }
  };
  int started = 0, level = MPI_THREAD_SINGLE, is_main = 0;
  MPI_Initialized(&started);
  if (!started) {
    expect_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    static auto const at_exit = AtExit{};
  }
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  if (level < MPI_THREAD_SERIALIZED && !is_main)
    throw Error{"MPI gave thread level " + std::to_string(level) + ", and this is not the main thread.",
                "MPI_Init_thread with MPI_THREAD_SERIALIZED, or connect() in main()'s thread."};
}

/// The communicators of one MpiEndpoint, and what is under way on them.
class MpiState {
 public:
  MpiState(std::size_t piece, std::chrono::nanoseconds timeout) : piece_{piece}, timeout_{timeout} {
    expect_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &data), "MPI_Comm_dup");
    expect_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(data, &rank);
    MPI_Comm_size(data, &size);
    int* highest = nullptr;
    int found    = 0;
    MPI_Comm_get_attr(data, MPI_TAG_UB, &highest, &found);
    while (found && tags_ <= static_cast<std::uint32_t>(*highest) / 2) tags_ *= 2;
    count_cores();
  }

  ~MpiState() {
    int over = 0;
    MPI_Finalized(&over);
    if (over) return;
    cancel_receives();
    MPI_Comm_free(&data);
    MPI_Comm_free(&control_);
  }
  MpiState(MpiState const&)            = delete;
  MpiState& operator=(MpiState const&) = delete;

  enum class Kind { send, recv };

  /// begin(bytes of a piece, MPI's tag, where the request goes) calls MPI_Isend or MPI_Irecv.
  template <class Begin>
  DrivenPending<MpiState> start(Kind kind, Rank peer, Tag tag, std::size_t bytes, Begin begin) {
    throw_if_lost();
    auto const ticket = under_way_.take();
    auto& item        = under_way_[ticket];
    auto requests     = std::move(item.requests);
    requests.assign(bytes / piece_ + 1, MPI_REQUEST_NULL);
    item = {this, kind, peer, tag, bytes, 0, std::move(requests)};
    for (std::size_t i = 0; i < item.requests.size(); ++i)
      expect_peer(begin(item.piece(i), fold(tag), &item.requests[i]), item);
    return {*this, ticket};
  }

  bool done(Ticket ticket) {
    throw_if_lost();
    if (under_way_.done(ticket)) return true;
    if (++looks_ % 256 == 0) listen();
    return false;
  }

  void wait(Ticket ticket) {
    auto patience = Patience{spins_};
    auto deadline = Deadline::never();
    while (!done(ticket)) {
      patience.pause();
      if (!patience.slow()) continue;
      listen();
      if (deadline.at == Deadline::never().at) deadline = Deadline::after(timeout_);
      if (deadline.passed()) give_up(under_way_[ticket]);
    }
  }

  /// Tells all others; nobody waits for them to hear it.
  void fail(std::string const& why) {
    if (!said_.empty() || lost_.rank >= 0) return;                    // the first cause counts
    said_         = why.substr(0, longest_text);
    lost_         = {.fault = Fault::peer_lost, .rank = rank, .reason = said_};
    auto requests = std::vector<MPI_Request>(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
    for (Rank peer = 0; peer < size; ++peer)
      if (peer != rank)
        MPI_Isend(said_.data(), static_cast<int>(said_.size()), MPI_BYTE, peer, 0, control_,
                  &requests[static_cast<std::size_t>(peer)]);
    for (auto& request : requests)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);    // said_ lives as long as the communicator
    cancel_receives();
  }

  void throw_if_lost() const {
    if (lost_.rank >= 0) throw PeerLost{rank, lost_};
  }

  MPI_Comm data = MPI_COMM_NULL;
  int rank = 0, size = 0;

 private:
  struct Item {
    MpiState* state = nullptr;
    Kind kind       = Kind::send;
    Rank peer       = 0;
    Tag tag         = {};
    std::size_t bytes = 0;
    std::size_t next  = 0;                                            // the first piece that is not complete
    std::vector<MPI_Request> requests{};                              // one a piece

    /// All pieces are full but the last, which is smaller, and may be empty: so both ends notice another size.
    Range piece(std::size_t i) const { return {i * state->piece_, std::min((i + 1) * state->piece_, bytes)}; }

    bool done() {
      for (; next < requests.size(); ++next) {
        int flag    = 0;
        auto status = MPI_Status{};
        state->expect_peer(MPI_Test(&requests[next], &flag, &status), *this);
        if (!flag) return false;
        if (kind == Kind::send) continue;
        int got = 0;
        MPI_Get_count(&status, MPI_BYTE, &got);
        auto const end = piece(next).begin + static_cast<std::size_t>(got);
        if (end != piece(next).end) state->disagree(*this, std::to_string(end) + " bytes");
      }
      return true;
    }
  };

  static constexpr std::size_t longest_text = 1'000;

  /// Tags that differ modulo 64 still do: the number of tags is a power of two, and MPI has 32768 at least.
  int fold(Tag tag) const { return static_cast<int>(static_cast<std::uint32_t>(tag) % tags_); }

  void count_cores() {
    auto here = MPI_COMM_NULL;
    int ranks = 0;
    expect_mpi(MPI_Comm_split_type(data, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
    MPI_Comm_size(here, &ranks);
    MPI_Comm_free(&here);
    if (static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()) spins_ = 20;
  }

  /// Has another rank said that it cannot go on?
  void listen() {
    int flag = 0, bytes = 0;
    auto status = MPI_Status{};
    MPI_Iprobe(MPI_ANY_SOURCE, 0, control_, &flag, &status);
    if (!flag) return;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    auto text = std::string(static_cast<std::size_t>(bytes), ' ');
    MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, 0, control_, MPI_STATUS_IGNORE);
    if (text.ends_with('.')) text.pop_back();
    lose({.fault = Fault::peer_lost, .rank = status.MPI_SOURCE, .reason = text});
  }

  void expect_peer(int code, Item const& item) {
    if (code == MPI_SUCCESS) return;
    auto kind = 0;
    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_TRUNCATE) disagree(item, "more");
    try {
      expect_mpi(code, "MPI");
    } catch (Error const& error) {
      lose({.fault = Fault::peer_lost, .rank = item.peer, .operation = text_of(item), .reason = error.what()});
    }
  }

  [[noreturn]] void disagree(Item const& item, std::string const& theirs) {
    auto const what = "rank " + std::to_string(item.peer) + " sent " + theirs + " where rank " +
                      std::to_string(rank) + " expected " + std::to_string(item.bytes) + " bytes, tag " +
                      std::to_string(static_cast<std::uint32_t>(item.tag)) + ".";
    fail(what);
    throw Error{what, "the same calls, with the same sizes and in the same order, on every rank."};
  }

  [[noreturn]] void give_up(Item const& item) {
    auto const limit = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    auto const loss  = Loss{.fault = Fault::peer_stalled, .rank = item.peer, .operation = text_of(item),
                            .reason = "rank " + std::to_string(rank) + " waited " + std::to_string(limit) +
                                      " ms for it"};
    fail("it lost rank " + std::to_string(item.peer) + ": " + loss.reason + " in " + loss.operation);
    lose(loss);
  }

  [[noreturn]] void lose(Loss loss) {
    lost_ = std::move(loss);
    cancel_receives();
    throw PeerLost{rank, lost_};
  }

  static std::string text_of(Item const& item) {
    return std::string{item.kind == Kind::recv ? "recv" : "send"} + ", tag " +
           std::to_string(static_cast<std::uint32_t>(item.tag));
  }

  /// So that no message lands in memory that its owner has given up, except one that is half here already.
  void cancel_receives() {
    under_way_.each([](Item& item) {
      if (item.kind == Kind::recv)
        for (auto& request : item.requests) cancel(request);
      return item.kind == Kind::recv;
    });
  }

  static void cancel(MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return;
    int flag = 0;
    MPI_Cancel(&request);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    if (!flag) MPI_Request_free(&request);
  }

  std::size_t piece_;
  std::chrono::nanoseconds timeout_;
  MPI_Comm control_   = MPI_COMM_NULL;
  std::uint32_t tags_ = 32'768;
  int spins_          = 2'000;
  unsigned looks_     = 0;                                            // in vain
  std::string said_;                                                  // to the others, when this rank failed
  Loss lost_;                                                         // its rank is -1 while nobody is lost
  InFlight<Item> under_way_;
};

}  // namespace chorale::detail

#endif
