// SPDX-License-Identifier: Apache-2.0
//
// Optional: chorale.hpp does not include it, and a program that does links MPI.
#pragma once

#if defined(CHORALE_COMPONENTS) && !defined(CHORALE_COMPONENT_MPI)
#error \
    "chorale: this header is of the component mpi. Try: add chorale::mpi to target_link_libraries(), or \
chorale-mpi to pkg-config"
#endif

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/transport/common/pending_table.hpp>
#include <chorale/transport/mpi/progress_engine.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<mpi.h>)

namespace chorale {

/// This process as a rank of an MPI job. See MpiTransport.
class MpiEndpoint {
 public:
  using pending = TablePending<mpi::ProgressEngine>;

  explicit MpiEndpoint(std::unique_ptr<mpi::ProgressEngine> state) : state_{std::move(state)} {}

  Rank rank() const { return state_->control.rank; }
  int size() const { return state_->control.size; }

  pending send(Rank peer, Tag tag, ConstBytes out) {
    expect_rank(peer);
    return state_->send(peer, tag, out);
  }
  pending recv(Rank peer, Tag tag, Bytes in) {
    expect_rank(peer);
    return state_->recv(peer, tag, in);
  }

  /// See chorale::announce().
  void announce(Operation const& operation) { state_->control.announce(operation); }

  /// See chorale::begin_step().
  void begin_step(std::uint64_t step) { state_->control.step = step; }

  /// Reduces x over all ranks by MPI_Allreduce. Once all ranks have begun it, it waits without a timeout.
  ///
  /// cost    MPI's; if the operation was announced, as by NativeAllReduce, log2 P empty messages before it, by which
  ///         ranks detect that a rank is missing, or in another operation
  /// order   MPI's: it advises the same bits on all ranks, but does not demand them; nor for NaN in min and max
  void all_reduce(Span<float> x, Op op) {
    constexpr std::size_t most = std::size_t{1} << 30;  // elements; fits in an int
    meet();
    auto const how = std::array{MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD}[static_cast<std::size_t>(op)];
    for (; !x.empty(); x = x.subspan(std::min(most, x.size())))
      mpi::expect_mpi(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(std::min(most, x.size())), MPI_FLOAT, how,
                                    state_->data),
                      "MPI_Allreduce");
  }

  /// Ends every wait of every rank with a PeerLost that names this rank and the reason.
  void fail(std::string const& why, Fault fault = Fault::peer_lost) { state_->control.fail(why, fault); }

 private:
  /// Waits until every rank has announced the operation that this rank announced last, once per operation.
  void meet() {
    state_->control.throw_if_lost();
    auto const& now = state_->control.announced().at(state_->control.announced().last());
    if (std::exchange(met_, now.sequence) == now.sequence) return;
    for (int distance = 1; distance < size(); distance *= 2) {
      auto sent = send((rank() + distance) % size(), now.operation.tag, {});
      recv((rank() - distance + size()) % size(), now.operation.tag, {}).wait();
      sent.wait();
    }
  }

  void expect_rank(Rank peer) const {
    CHORALE_EXPECTS(peer >= 0 && peer < size(),
                    "no rank " + std::to_string(peer) + " in a group of " + std::to_string(size()));
  }

  std::unique_ptr<mpi::ProgressEngine> state_;
  std::uint64_t met_ = 0;  // the last operation that synchronized all ranks
};

/// Ranks under mpirun or Slurm, on any fabric that MPI supports: one rank per process, as in a communicator.
///
///   auto endpoints = MpiTransport{}.connect(MpiTransport::group());        mpirun -np 4 ./program
///   auto transport = MpiTransport{communicator};                           of a program that has its own messages
///
/// keeps   Messages are on two duplicates of the communicator: they never meet the program's messages, whatever their
///         tags, and errors of MPI on them are returned and become ours; the communicator itself is left as it is.
///         For MPI_COMM_WORLD, MPI is initialized if it is not, with MPI_THREAD_SERIALIZED, and then finalized at exit;
///         where the program has initialized MPI, the program finalizes it, after its endpoints have ended: one that
///         lives is a BadArgument from then on, and PeerLost for ranks that wait for it. Below MPI_THREAD_SERIALIZED
///         another thread than MPI_Init's gets a BadArgument. All ranks connect in the same order. An
///         endpoint may be moved, but not destroyed, while operations are in flight. After a PeerLost no message
///         arrives any more, but memory that was being sent must live until the program ends
/// cost    a header of 64 bytes for each message, with which up to 1984 of its bytes are copied; the rest is not copied
/// throws  PeerLost when a message takes longer than the timeout, when MPI reports that the peer is gone, and when
///         another rank has failed; Disagreement on all ranks when two are in different operations, or a message has
///         another size than expected. These are detected with the first bytes of a message, or by ranks that have
///         waited for 50 ms; some bytes of a larger message may be in memory by then
///
/// communicator   the ranks, with this process as one; the program frees it when it likes
/// timeout        the longest wait for one message
/// piece          the largest part of a message that is sent at once, in bytes, at most 1 GiB; the same on all ranks
struct MpiTransport {
  using endpoint = MpiEndpoint;

  MPI_Comm communicator            = MPI_COMM_WORLD;
  std::chrono::nanoseconds timeout = std::chrono::seconds{60};
  std::size_t piece                = std::size_t{1} << 30;

  static constexpr bool reaches(Memory memory) { return memory == Memory::host; }

  /// The group of a communicator, with the rank of this process; of all ranks that mpirun started, unless it is named.
  ///
  /// throws  BadArgument when ranks cannot be connected over the communicator: MPI_COMM_NULL, one between two groups,
  ///         one of a program that has not called MPI_Init, or after MPI_Finalize
  static Group group(MPI_Comm communicator = MPI_COMM_WORLD) {
    mpi::expect_usable(communicator);
    int rank = 0, size = 0;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
    return {size, {rank}};
  }

  /// Connects the ranks of the communicator. Every rank of it calls this.
  ///
  /// throws  BadArgument when the group is not the communicator's, and as group() does
  std::vector<endpoint> connect(Group const& asked) const {
    auto const here = group(communicator);
    CHORALE_EXPECTS(piece >= 1 && piece <= std::size_t{1} << 30, "a piece of " + std::to_string(piece) + " bytes");
    CHORALE_EXPECTS(asked.size() == here.size() && asked.local() == here.local(),
                    "this is rank " + std::to_string(here.local().front()) + " of the " + std::to_string(here.size()) +
                        " of the communicator, but the group has " + std::to_string(asked.size()) +
                        " ranks, of which " + std::to_string(asked.local().size()) + " live here");
    auto endpoints = std::vector<endpoint>{};
    endpoints.emplace_back(std::make_unique<mpi::ProgressEngine>(communicator, piece, timeout));
    return endpoints;
  }
};

static_assert(CollectiveTransport<MpiTransport>);

}  // namespace chorale

#else

namespace chorale {

/// Compile-time error for a program that uses MpiTransport where the compiler does not find MPI.
template <class Program = void> struct MpiTransport {
  static_assert(sizeof(Program*) == 0,
                "chorale: MpiTransport needs <mpi.h>, which the compiler does not find. Depend on @mpi, or compile "
                "with mpicxx; on Debian: apt-get install libopenmpi-dev");
};

}  // namespace chorale

#endif
