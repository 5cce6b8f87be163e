// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<gsl/util>)
#error \
    "chorale: <gsl/util> is not on the include path. Try: apt-get install libmsgsl-dev (Debian), dnf install \
guidelines-support-library-devel (Fedora), brew install cpp-gsl (Homebrew) or vcpkg install ms-gsl"
#endif

#include <chorale/core/error.hpp>

#include <gsl/assert>
#include <gsl/util>

#include <string>

/// Checks for a mistake of the caller at run time: throws BadArgument with `sentence`, any expression that makes a
/// string, unless `condition` is true.
///
///   CHORALE_EXPECTS(rows > 0, "a batch needs at least one row, got " + std::to_string(rows));
#define CHORALE_EXPECTS(condition, sentence) \
  (GSL_LIKELY(condition) ? static_cast<void>(0) : ::chorale::detail::expects_failed(#condition, (sentence)))

/// Checks what should hold by construction: throws Error, a defect of the library, unless `condition` is true.
#define CHORALE_ENSURES(condition, sentence) \
  (GSL_LIKELY(condition) ? static_cast<void>(0) : ::chorale::detail::ensures_failed(#condition, (sentence)))

namespace chorale::detail {

[[noreturn]] inline void expects_failed(char const* condition, std::string const& sentence) {
  throw BadArgument{sentence + " (needs " + condition + ")."};
}

[[noreturn]] inline void ensures_failed(char const* condition, std::string const& sentence) {
  throw Error{sentence + " (" + condition + " does not hold).", "report this: it is a defect of the library."};
}

}  // namespace chorale::detail
