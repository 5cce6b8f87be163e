// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it, and a program that does links MPI.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/in_flight.hpp>
#include <chorale/transport/mpi_state.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<mpi.h>)

namespace chorale {

/// This process as a rank of an MPI job. See MpiTransport.
class MpiEndpoint {
 public:
  using pending = DrivenPending<detail::MpiState>;

  explicit MpiEndpoint(std::unique_ptr<detail::MpiState> state) : state_{std::move(state)} {}

  Rank rank() const { return state_->rank; }
  int  size() const { return state_->size; }

  pending send(Rank peer, Tag tag, ConstBytes out) {
    expect_rank(peer);
    return state_->start(Kind::send, peer, tag, out.size(), [&](Range part, int as, MPI_Request* into) {
      return MPI_Isend(out.data() + part.begin, static_cast<int>(part.size()), MPI_BYTE, peer, as, state_->data, into);
    });
  }
  pending recv(Rank peer, Tag tag, Bytes in) {
    expect_rank(peer);
    return state_->start(Kind::recv, peer, tag, in.size(), [&](Range part, int as, MPI_Request* into) {
      return MPI_Irecv(in.data() + part.begin, static_cast<int>(part.size()), MPI_BYTE, peer, as, state_->data, into);
    });
  }

  /// MPI's own. Waits as long as MPI does: no timeout of ours.
  ///
  /// order   MPI's: the same bits on all ranks is what it advises, not what it demands; so with NaN in min and max
  void all_reduce(Span<float> x, Op op) {
    constexpr std::size_t most = std::size_t{1} << 30;                // elements, in an int
    state_->throw_if_lost();
    auto const how = std::array{MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD}[static_cast<std::size_t>(op)];
    for (; !x.empty(); x = x.subspan(std::min(most, x.size())))
      detail::expect_mpi(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(std::min(most, x.size())), MPI_FLOAT,
                                       how, state_->data), "MPI_Allreduce");
  }

  void fail(std::string const& why) { state_->fail(why); }

 private:
  using Kind = detail::MpiState::Kind;

  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(), "no rank " + std::to_string(peer) + " in a group of " +
                                                    std::to_string(size()));
  }

  std::unique_ptr<detail::MpiState> state_;
};

/// Ranks under mpirun or Slurm, on whatever fabric MPI drives: one rank a process, with its number in MPI_COMM_WORLD.
///
///   auto endpoints = MpiTransport{}.connect(MpiTransport::group());        mpirun -np 4 ./program
///
/// keeps   MPI is started if it is not, with MPI_THREAD_SERIALIZED, and then ended at exit. All ranks connect in the
///         same order. An endpoint may be moved while operations are in flight; they need it to live. After a PeerLost
///         no message arrives any more, but memory that was being sent must live until the program ends
/// throws  PeerLost when a message takes longer than the timeout, when MPI says that the peer is gone, and when another
///         rank has failed; Error on the receiver when the two ends of a message differ in size
/// order   announced operations are not compared: MPI's messages have no room for a fingerprint
///
/// timeout   the longest wait for one message
/// piece     messages travel in pieces of at most so many bytes, below 2 GiB; the same on all ranks
struct MpiTransport {
  using endpoint = MpiEndpoint;

  std::chrono::nanoseconds timeout = std::chrono::seconds{60};
  std::size_t piece                = std::size_t{1} << 30;

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  /// This process in the job that mpirun started.
  static Group group() {
    detail::start_mpi();
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return {size, {rank}};
  }

  /// throws  BadArgument when the group is not the job that mpirun started
  std::vector<endpoint> connect(Group const& asked) const {
    auto const here = group();
    CHORALE_EXPECTS(piece >= 1 && piece <= std::size_t{1} << 30, "a piece of " + std::to_string(piece) + " bytes");
    CHORALE_EXPECTS(asked.size() == here.size() && asked.local() == here.local(),
                    "this is rank " + std::to_string(here.local().front()) + " of " + std::to_string(here.size()) +
                        " under MPI, but the group has " + std::to_string(asked.size()) + " ranks, of which " +
                        std::to_string(asked.local().size()) + " live here");
    auto endpoints = std::vector<endpoint>{};
    endpoints.emplace_back(std::make_unique<detail::MpiState>(piece, timeout));
    return endpoints;
  }
};

static_assert(CollectiveTransport<MpiTransport>);

}  // namespace chorale

#else

namespace chorale {

/// What is said to a program that uses MpiTransport where the compiler does not find MPI.
template <class Program = void>
struct MpiTransport {
  static_assert(sizeof(Program*) == 0,
                "chorale: MpiTransport needs <mpi.h>, which the compiler does not find. Depend on @mpi, or compile "
                "with mpicxx; on Debian: apt-get install libopenmpi-dev");
};

}  // namespace chorale

#endif
