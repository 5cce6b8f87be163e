// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/file_descriptor.hpp>

#include <filesystem>
#include <string>
#include <system_error>

namespace chorale {

/// Path to write when a file is requested under this name. A symbolic link is followed to its target, which need not
/// exist: the target is written, and the link stays a link.
///
/// keeps   nothing is opened, created or changed
/// throws  BadFile when the name is empty, when it names something other than a regular file (a device, a FIFO, a
///         socket, a folder), or when symbolic links lead in a circle
inline std::filesystem::path output_file(std::filesystem::path const& path) {
  using Type                = std::filesystem::file_type;
  constexpr auto most_links = 40;  // the system's own limit
  auto const what_to_try    = std::string{"the name of a file, which need not exist."};
  auto code                 = std::error_code{};
  if (path.empty()) throw BadFile{"the file to write has the empty name \"\".", what_to_try};
  auto const type = path.has_filename() ? std::filesystem::status(path, code).type() : Type::directory;
  if (type != Type::none && type != Type::not_found && type != Type::regular)
    throw BadFile{
        path.string() + ": is " + detail::file_kind(type) + ", and only a regular file is written or replaced.",
        what_to_try};
  auto at = path;
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(at, code)); ++links) {
    if (links == most_links)
      throw BadFile{
          path.string() + ": more than " + std::to_string(most_links) + " symbolic links, one after the other.",
          "the name of the file itself."};
    at = at.parent_path() / std::filesystem::read_symlink(at, code);  // an absolute target replaces the folder
    if (code) throw BadFile{path.string() + ": a symbolic link that cannot be read: " + code.message() + "."};
  }
  return at;
}

}  // namespace chorale
