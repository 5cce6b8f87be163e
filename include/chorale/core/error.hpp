// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace chorale {

/// The world's fault or the caller's, in one sentence: what, where, both numbers; then what to try.
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

/// Numbers went wrong: the loss or a gradient is not finite. A program that gets one ends with exit code 4.
struct NumericFault : Error {
  using Error::Error;
};

/// A device could not give the memory that was asked for.
struct OutOfMemory : Error {
  using Error::Error;
};

/// A rank of the group failed or fell silent. The message names it, and the operation that waited for it.
class PeerLost : public Error {
 public:
  PeerLost(int rank, std::string const& what_and_where, std::string const& what_to_try = {})
      : Error{what_and_where, what_to_try}, rank_{rank} {}

  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The exit code that a program should end with after this error.
///
/// source  one code per kind of fault, so that a job manager can tell a retry from a mistake
inline int exit_code(std::exception const& error) {
  if (dynamic_cast<BadArgument const*>(&error) || dynamic_cast<BadFile const*>(&error)) return 2;
  if (dynamic_cast<NumericFault const*>(&error)) return 4;
  if (dynamic_cast<PeerLost const*>(&error)) return 138;                   // 128 + SIGUSR1: restart me
  return 1;
}

}  // namespace chorale
