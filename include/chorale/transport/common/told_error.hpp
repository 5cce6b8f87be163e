// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>

#include <string>
#include <string_view>

/// Errors that one rank throws, and that the others throw because they are told.
namespace chorale::detail {

inline constexpr std::string_view error_begins = "chorale: ", tries = "\n         Try: ", tries_in_line = " Try: ";

/// The text of an error as a part of another sentence, in one line: without its beginning and its end, and without what
/// to try where others throw a Disagreement, which says that itself.
inline std::string told_text(std::string_view what, Fault fault) {
  if (what.starts_with(error_begins)) what.remove_prefix(error_begins.size());
  auto const at = what.find(tries);
  auto line     = std::string{what.substr(0, at)};
  if (line.ends_with('.')) line.pop_back();
  if (at != what.npos && (fault == Fault::peer_lost || fault >= Fault::bad_argument))
    line.append(".").append(tries_in_line).append(what.substr(at + tries.size()));
  return line;
}

/// Throws the error that a rank has told, if the loss is one; `told_text` is then its reason.
inline void throw_if_told(Loss const& loss) {
  if (loss.fault < Fault::bad_argument) return;
  auto const text = loss.reason + (loss.reason.ends_with('.') ? "" : ".");
  auto const at   = text.find(tries_in_line);
  auto const what = sentence("rank {}{} failed in step {}: {}", loss.rank, loss.host.empty() ? "" : " on " + loss.host,
                             loss.step, text.substr(0, at));
  auto const hint = at == text.npos ? std::string{} : text.substr(at + tries_in_line.size());
  switch (loss.fault) {
    case Fault::bad_argument: throw Told<BadArgument>{what, hint};
    case Fault::bad_file: throw Told<BadFile>{what, hint};
    case Fault::file_fault: throw Told<FileFault>{what, hint};
    default: throw Told<NumericFault>{what, hint};
  }
}

/// Throws a loss again, with messages that the endpoint knows only one by one in place of its last operation.
///
/// me    the rank that throws
/// what  these messages: "a message of 8 bytes along the axis tensor"
[[noreturn]] inline void throw_within(Rank me, PeerLost const& lost, std::string const& what) {
  auto loss       = lost.loss();
  auto const text = std::string_view{lost.what()};
  auto const at   = text.find(tries);
  loss.operation  = what;
  loss.sequence   = 0;
  throw PeerLost{me, loss, at == text.npos ? std::string{} : std::string{text.substr(at + tries.size())}};
}

}  // namespace chorale::detail
