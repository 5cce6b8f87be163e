// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/manifest.hpp>
#include <chorale/checkpoint/mapped_file.hpp>
#include <chorale/checkpoint/open_folder.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace chorale {

namespace detail {

[[noreturn]] inline void bad_checkpoint(std::string const& what) {
  throw BadFile{what + ".", "another checkpoint: a part of this one is missing, cut off, or was changed."};
}

/// Fills `to` from this place of a file; returns how many bytes there were.
inline std::size_t read_at(FileDescriptor const& file, std::uint64_t at, Bytes to, std::string const& name) {
  auto done = std::size_t{0};
  while (done < to.size()) {
    auto const n = ::pread(file.number(), to.data() + done, to.size() - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_fault(name + ": byte " + std::to_string(at + done) + ": cannot be read");
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

/// What the system refuses while something is read is damage, too.
template <class Read>
auto or_bad_file(OpenFolder const& folder, Read&& read) {
  try {
    return read();
  } catch (std::system_error const& error) {
    bad_checkpoint(folder.path() + "/" + error.what());
  }
}

}  // namespace detail

/// throws  BadFile when there is none, or it is not one; with the byte where that shows
inline Manifest read_manifest(OpenFolder const& folder) {
  return detail::or_bad_file(folder, [&] {
    auto const name = std::string{Manifest::file_name};
    auto const file = folder.read(name);
    auto const size = folder.size_of(name).value_or(0);
    auto text       = std::string(std::min<std::uint64_t>(size, Manifest::max_bytes + 1), '\0');
    text.resize(detail::read_at(file, 0, std::as_writable_bytes(Span<char>{text}), name));
    return Manifest::parse(text, folder.path() + "/" + name);
  });
}

/// Are all files there, and as long as they should be? Their bytes are not looked at.
///
/// throws  BadFile for the first one that is not
inline void check_sizes(OpenFolder const& folder, Manifest const& manifest) {
  for (auto const& file : manifest.files) {
    auto const size = folder.size_of(file.name());
    if (!size) detail::bad_checkpoint(folder.path() + "/" + file.name() + ": byte 0: there is no such file");
    if (*size != file.size)
      detail::bad_checkpoint(folder.path() + "/" + file.name() + ": byte " +
                             std::to_string(std::min(*size, file.size)) + ": it has " + std::to_string(*size) +
                             " bytes, but the manifest says " + std::to_string(file.size));
  }
}

/// A file's bytes, of which every block has the checksum of the manifest.
///
/// keeps   what was checked is what is returned: the bytes are a copy, and the disk is read once
/// throws  BadFile with the first block that is wrong or cannot be read
inline MappedFile read_verified(OpenFolder const& folder, ManifestFile const& wanted, std::uint64_t block) {
  return detail::or_bad_file(folder, [&] {
    auto const name = wanted.name();
    auto const file = folder.read(name);
    if (folder.size_of(name) != wanted.size)               // before memory is asked for
      detail::bad_checkpoint(folder.path() + "/" + name + ": byte 0: its length has just changed");
    return MappedFile::copied(static_cast<std::size_t>(wanted.size), [&](Bytes bytes) {
      for (std::uint64_t at = 0, i = 0; at < wanted.size; at += block, ++i) {
        auto const piece = bytes.subspan(static_cast<std::size_t>(at),
                                         static_cast<std::size_t>(std::min(block, wanted.size - at)));
        if (at + block < wanted.size)                      // the disk reads on while this piece is summed
          ::posix_fadvise(file.number(), static_cast<off_t>(at + block), static_cast<off_t>(block),
                          POSIX_FADV_WILLNEED);
        auto const got = detail::read_at(file, at, piece, name);
        if (got != piece.size())
          detail::bad_checkpoint(folder.path() + "/" + name + ": byte " + std::to_string(at + got) + ": it ends there");
        if (auto const crc = crc32c(piece); crc != wanted.crc32c[static_cast<std::size_t>(i)])
          detail::bad_checkpoint(folder.path() + "/" + name + ": byte " + std::to_string(at) + ": the " +
                                 std::to_string(piece.size()) + " bytes from there have the CRC-32C " +
                                 ManifestText::hex(crc) + ", but the manifest says " +
                                 ManifestText::hex(wanted.crc32c[static_cast<std::size_t>(i)]));
      }
    });
  });
}

}  // namespace chorale
