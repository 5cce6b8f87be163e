// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/config.hpp>
#include <chorale/core/standard_files.hpp>  // whatever opens files includes this

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace chorale {

/// Base of the library's errors. One sentence with what happened, where, and both numbers; then what to try.
///
/// Prints as two lines, the second only when there is something to try:
///   chorale: images.gz: byte 4: 60000 images, but labels.gz has 10000 labels.
///            Try: the two files of one split.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string const& what_and_where, std::string const& what_to_try = {})
      : std::runtime_error{"chorale: " + what_and_where +
                           (what_to_try.empty() ? "" : "\n         Try: " + what_to_try)} {}
};

/// A flag, an option or an argument that cannot be used. A program that gets one ends with exit code 2.
struct BadArgument : Error {
  using Error::Error;
};

/// A file that is missing, truncated, mislabelled or too large. A program that gets one ends with exit code 2.
struct BadFile : Error {
  using Error::Error;
};

/// Checkpoints could not be written, or none of them could be read. A program that gets one ends with exit code 5.
struct FileFault : Error {
  using Error::Error;
};

/// The program was asked to end, and did so in good order: start it again to continue. Exit code 143, as after SIGTERM,
/// whichever signal asked.
struct Preempted : Error {
  using Error::Error;
};

/// The loss or a gradient is not finite. A program that gets one ends with exit code 4.
struct NumericFault : Error {
  using Error::Error;
};

/// A device could not provide the memory that was requested.
struct OutOfMemory : Error {
  using Error::Error;
};

/// The process or the system has no file descriptor left. A program that gets one ends with exit code 1.
struct OutOfDescriptors : Error {
  using Error::Error;
};

/// Why a rank could not continue with its peers. Programs decide by this value, never by the text of an error.
enum class Fault {
  peer_lost,            // its connection closed, or its process ended
  peer_stalled,         // silent, or without progress, for too long
  frame_corrupt,        // a checksum did not match
  evicted,              // this rank was declared dead by the others, and came back
  join_timeout,         // ranks never connected
  collective_mismatch,  // ranks called different operations, or in a different order
  model_mismatch,       // ranks were built from different models
  world_mismatch,       // ranks disagree about their number, or about the job
  version_mismatch,     // ranks use different versions of the wire format
  duplicate_rank,       // two processes claim one rank
  not_authentic,        // no secret, or a different one
  bad_argument,         // the program of a rank threw this, and the others were told
  bad_file,
  file_fault,
  numeric_fault,
};

/// The root cause of a loss, the same on every survivor.
struct Loss {
  Fault fault = Fault::peer_lost;
  int rank    = -1;            // the one that failed
  std::string host{};          // where it ran, when known
  std::string operation{};     // that the first rank to detect it was in
  std::uint64_t sequence = 0;  // of that operation; 0: it has no number
  std::uint64_t step     = 0;  // the training step
  std::string reason{};        // a part of a sentence: "it closed the ..."
};

/// A rank of the group failed or fell silent. The message names the rank, and the operation that waited for it.
class PeerLost : public Error {
 public:
  PeerLost(int rank, std::string const& what_and_where, std::string const& what_to_try = {})
      : Error{what_and_where, what_to_try} {
    loss_.rank = rank;
  }

  /// me    the rank that throws
  PeerLost(int me, Loss loss, std::string const& what_to_try = {})
      : Error{sentence(me, loss), what_to_try}, loss_{std::move(loss)} {}

  int rank() const noexcept { return loss_.rank; }
  Fault fault() const noexcept { return loss_.fault; }
  Loss const& loss() const noexcept { return loss_; }

 private:
  static std::string sentence(int me, Loss const& loss) {
    auto const mine = loss.rank == me;  // a rank does not lose itself
    auto const what = loss.fault == Fault::evicted ? " was given up by the other ranks" : " failed";
    return "rank " + std::to_string(me) + (mine ? "" : " lost rank " + std::to_string(loss.rank)) +
           (loss.host.empty() ? "" : " on " + loss.host) + (mine ? what : "") + " in step " +
           std::to_string(loss.step) +
           (loss.operation.empty() ? ""
            : loss.sequence == 0   ? ", " + loss.operation
                                   : ", operation " + std::to_string(loss.sequence) + ", " + loss.operation) +
           ": " + loss.reason + ".";
  }

  Loss loss_;
};

/// Ranks that can never work together: they differ in their models, versions or order of calls. A restart does not
/// help; a program that gets one ends with exit code 3.
class Disagreement : public Error {
 public:
  Disagreement(Fault fault, std::string const& what_and_where, std::string const& what_to_try = {})
      : Error{what_and_where, what_to_try}, fault_{fault} {}

  Fault fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

namespace detail {

/// An error that another rank has thrown, and told: a consequence, as a PeerLost is.
struct Consequence {};
/// An E that another rank has thrown.
template <class E> struct Told final : E, Consequence {
  using E::E;
};

/// True if this error is an E. The only function here that needs the types of objects at run time.
template <class E> bool is_a(std::exception const& error) { return dynamic_cast<E const*>(&error) != nullptr; }

}  // namespace detail

/// The Fault that reports an error to the other ranks of a group. An error without a Fault is the loss of this rank.
inline Fault fault_of(std::exception const& error) {
  if (auto const* disagreement = dynamic_cast<Disagreement const*>(&error)) return disagreement->fault();
  return detail::is_a<BadArgument>(error)    ? Fault::bad_argument
         : detail::is_a<BadFile>(error)      ? Fault::bad_file
         : detail::is_a<FileFault>(error)    ? Fault::file_fault
         : detail::is_a<NumericFault>(error) ? Fault::numeric_fault
                                             : Fault::peer_lost;
}

/// The exit code that a program should end with after this error.
///
/// source  one code per kind of fault, so that a job manager can tell a retry from a mistake
inline int exit_code(std::exception const& error) {
  if (detail::is_a<BadArgument>(error) || detail::is_a<BadFile>(error)) return 2;
  if (detail::is_a<Disagreement>(error)) return 3;
  if (detail::is_a<NumericFault>(error)) return 4;
  if (detail::is_a<FileFault>(error)) return 5;
  if (detail::is_a<Preempted>(error)) return 143;  // 128 + SIGTERM: restart me
  if (detail::is_a<PeerLost>(error)) return 138;   // 128 + SIGUSR1: restart me
  return 1;
}

}  // namespace chorale
