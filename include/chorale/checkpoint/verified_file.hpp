// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/directory.hpp>
#include <chorale/checkpoint/manifest.hpp>
#include <chorale/checkpoint/mapped_file.hpp>
#include <chorale/core/cores.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace chorale {

namespace detail {

[[noreturn]] inline void bad_checkpoint(std::string const& what) {
  throw BadFile{what + ".", "another checkpoint: a part of this one is missing, cut off, or was changed."};
}

/// Fills `to` from byte `at` of a file; returns the number of bytes read, fewer at the end of the file.
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

/// Turns an error of the system while reading into BadFile: it counts as damage, too.
template <class Read> auto or_bad_file(Directory const& folder, Read&& read) {
  try {
    return read();
  } catch (std::system_error const& error) { bad_checkpoint(folder.path() + "/" + error.what()); }
}

}  // namespace detail

/// throws  BadFile with the byte, when the manifest is missing or not valid
inline Manifest read_manifest(Directory const& folder) {
  return detail::or_bad_file(folder, [&] {
    auto const name = std::string{Manifest::file_name};
    auto const file = folder.read(name);
    auto const size = folder.size_of(name).value_or(0);
    auto text       = std::string(std::min<std::uint64_t>(size, Manifest::max_bytes + 1), '\0');
    text.resize(detail::read_at(file, 0, std::as_writable_bytes(Span<char>{text}), name));
    return Manifest::parse(text, folder.path() + "/" + name);
  });
}

/// Checks that all files exist and have the sizes of the manifest. Their bytes are not read.
///
/// throws  BadFile for the first file that does not
inline void check_sizes(Directory const& folder, Manifest const& manifest) {
  for (auto const& file : manifest.files) {
    auto const size = folder.size_of(file.name());
    if (!size) detail::bad_checkpoint(folder.path() + "/" + file.name() + ": byte 0: there is no such file");
    if (*size != file.size)
      detail::bad_checkpoint(folder.path() + "/" + file.name() + ": byte " +
                             std::to_string(std::min(*size, file.size)) + ": it has " + std::to_string(*size) +
                             " bytes, but the manifest says " + std::to_string(file.size));
  }
}

namespace detail {

/// Reads one block of a file into `to`, and checks its checksum.
///
/// throws  BadFile
inline void read_block(Directory const& folder, FileDescriptor const& file, std::string const& name, std::uint64_t at,
                       Bytes to, std::uint32_t wanted) {
  constexpr auto at_once = std::size_t{256} << 10;  // summed while it is in a cache
  auto const wrong       = [&](std::uint64_t byte, std::string const& what) {
    bad_checkpoint(folder.path() + "/" + name + ": byte " + std::to_string(byte) + ": " + what);
  };
  auto crc = std::uint32_t{0};
  for (std::size_t done = 0; done < to.size();) {
    auto const piece = to.subspan(done, std::min(at_once, to.size() - done));
    auto const got   = read_at(file, at + done, piece, name);
    if (got != piece.size()) wrong(at + done + got, "it ends there");
    crc = crc32c(piece, crc);
    done += piece.size();
  }
  if (crc != wanted)
    wrong(at, "the " + std::to_string(to.size()) + " bytes from there have the CRC-32C " + ManifestText::hex(crc) +
                  ", but the manifest says " + ManifestText::hex(wanted));
}

/// Calls f(0) … f(n - 1), in turn by as many threads as there are cores, four at most.
///
/// throws  what f throws for the smallest i; f may not be called for larger i then
template <class F> void in_turn_by_threads(std::size_t n, F const& f) {
  auto next       = std::atomic<std::size_t>{0};
  auto mutex      = std::mutex{};  // guards what follows
  auto failed     = n;
  auto failure    = std::exception_ptr{};
  auto const work = [&] {
    for (auto i = next++; i < n; i = next++) try {
        f(i);
      } catch (...) {
        auto const lock = std::lock_guard{mutex};
        if (i < failed) failed = i, failure = std::current_exception();
        next = n;  // all before i have been taken
      }
  };
  {
    auto threads = std::vector<NamedThread>{};
    for (auto i = std::min<std::size_t>({n, static_cast<std::size_t>(usable_cores()), 4}); i > 1; --i) try {
        threads.emplace_back("ckpt read", work);
      } catch (Error const&) {  // no thread is left: the others do all of it
        break;
      }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

/// Returns a file's bytes. Every block has been checked against its checksum in the manifest.
///
/// keeps   the bytes that were checked are returned: they are a copy, and the disk is read once
/// throws  BadFile with the first block that is wrong or cannot be read
inline MappedFile read_verified(Directory const& folder, ManifestFile const& wanted, std::uint64_t block) {
  return detail::or_bad_file(folder, [&] {
    auto const name = wanted.name();
    auto const file = folder.read(name);
    if (folder.size_of(name) != wanted.size)  // before memory is allocated
      detail::bad_checkpoint(folder.path() + "/" + name + ": byte 0: its length has just changed");
    constexpr auto ahead   = std::uint64_t{8};  // blocks that the disk reads while one is summed
    auto const soon_needed = [&](std::uint64_t at, std::uint64_t bytes) {
      constexpr auto piece = std::uint64_t{128} << 10;  // the system may shorten a longer request
      for (auto const end = std::min(at + bytes, wanted.size); at < end; at += piece)
        ::posix_fadvise(file.number(), static_cast<off_t>(at), static_cast<off_t>(piece), POSIX_FADV_WILLNEED);
    };
    soon_needed(0, ahead * block);
    return MappedFile::copied(static_cast<std::size_t>(wanted.size), [&](Bytes bytes) {
      detail::in_turn_by_threads(wanted.crc32c.size(), [&](std::size_t i) {
        auto const at   = i * block;
        auto const size = static_cast<std::size_t>(std::min(block, wanted.size - at));
        auto const to   = bytes.subspan(static_cast<std::size_t>(at), size);
        soon_needed(at + ahead * block, block);
        detail::read_block(folder, file, name, at, to, wanted.crc32c[i]);
      });
    });
  });
}

}  // namespace chorale
