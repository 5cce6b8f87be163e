// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <gsl/gsl>

#include <string>

/// The caller's mistake at run time: throws BadArgument with the sentence, which may be any expression that makes a
/// string.
///
///   CHORALE_EXPECTS(rows > 0, "a batch needs at least one row, got " + std::to_string(rows));
#define CHORALE_EXPECTS(condition, sentence)                                                 \
  (GSL_LIKELY(condition) ? static_cast<void>(0)                                              \
                         : ::chorale::detail::expects_failed(#condition, (sentence)))

/// Our own mistake: something that should hold by construction does not. Throws Error.
#define CHORALE_ENSURES(condition, sentence)                                                 \
  (GSL_LIKELY(condition) ? static_cast<void>(0)                                              \
                         : ::chorale::detail::ensures_failed(#condition, (sentence)))

namespace chorale::detail {

[[noreturn]] inline void expects_failed(char const* condition, std::string const& sentence) {
  throw BadArgument{sentence + " (needs " + condition + ")."};
}

[[noreturn]] inline void ensures_failed(char const* condition, std::string const& sentence) {
  throw Error{sentence + " (" + condition + " does not hold).", "report this: it is a defect of the library."};
}

}  // namespace chorale::detail
