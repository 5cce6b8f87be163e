// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/directory.hpp>
#include <chorale/checkpoint/failpoints.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/types.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Fault points of a file of tensors, and of the manifest.
struct FilePoints {
  static constexpr std::string_view half = "ckpt.file.half", written = "ckpt.file.written", synced = "ckpt.file.synced";
};
/// Names of the points at which a test ends the process while it writes a manifest.
struct ManifestPoints {
  static constexpr std::string_view half = "ckpt.manifest.half", written = "ckpt.manifest.written",
                                    synced = "ckpt.manifest.synced";
};

/// A new file of a folder, with a CRC-32C of each block.
///
/// order   the disk begins to write a block while the next one is copied and summed
/// throws  std::system_error with the name and the byte
template <FaultPoints Faults = NoFaults, class Points = FilePoints>
class ChecksummedFile {
 public:
  /// size    that the file will have
  ChecksummedFile(Directory const& folder, std::string name, std::uint64_t size, std::uint64_t block,
                  Faults faults = {})
      : name_{std::move(name)}, file_{folder.create(name_)}, size_{size}, block_{block}, faults_{std::move(faults)} {}

  void write(ConstBytes bytes) {
    while (!bytes.empty()) {
      auto const room  = std::min(block_ - written_ % block_, at_once);
      auto const piece = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(room, bytes.size())));
      if (written_ % block_ == 0) sums_.push_back(0);
      sums_.back() = crc32c(piece, sums_.back());
      write_all(piece);
      if (written_ % block_ == 0) begin_to_sync();
      bytes = bytes.subspan(piece.size());
    }
  }

  /// Syncs the file to the disk and closes it.
  ///
  /// returns  the checksums
  std::vector<std::uint32_t> finish() {
    faults_.hit(Points::written);
    if (::fsync(file_.number()) != 0) fail("cannot be brought to the disk");
    if (file_.close() != 0) fail("cannot be closed");
    faults_.hit(Points::synced);
    return std::move(sums_);
  }

 private:
  // Summed while it is in a cache. More at once makes the system look for larger pages, which can take it seconds.
  static constexpr std::uint64_t at_once = 256U << 10;

  void write_all(ConstBytes bytes) {
    while (!bytes.empty()) {
      auto const n = ::write(file_.number(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("byte " + std::to_string(written_) + ": cannot be written", n == 0 ? EIO : errno);
      auto const before = written_;
      written_ += static_cast<std::uint64_t>(n);
      if (before < size_ / 2 && written_ >= size_ / 2) faults_.hit(Points::half);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  /// Starts writing the last block to the disk. It is a hint: finish() syncs everything, and reports errors.
  void begin_to_sync() const {
    ::sync_file_range(file_.number(), static_cast<off_t>(written_ - block_), static_cast<off_t>(block_),
                      SYNC_FILE_RANGE_WRITE);
  }

  [[noreturn]] void fail(std::string const& what, int number = errno) const {
    system_fault(name_ + ": " + what, number);
  }

  std::string name_;
  FileDescriptor file_;
  std::uint64_t size_, block_, written_ = 0;
  std::vector<std::uint32_t> sums_;
  [[no_unique_address]] Faults faults_;
};

}  // namespace chorale
