// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/data/formats/tfrecord.hpp>

#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace chorale::data {

/// Writes a TFRecord file, record after record.
///
///   auto to = data::TfRecordWriter{"train-00.tfrecord"};   to.write(example.bytes());   to.close();
///
/// keeps   the file is whole after close(); without it, the last records may be missing
/// throws  BadFile with the file and the number of records written before, and when the path is that of a device, a
///         FIFO or a folder; a symbolic link is followed
class TfRecordWriter {
 public:
  explicit TfRecordWriter(std::filesystem::path file, Compression compression = Compression::none)
      : path_{std::move(file)} {
    CHORALE_EXPECTS(compression != Compression::detect, "a writer has to be told how to pack");
    file_.reset(std::fopen(output_file(path_).c_str(), "wb"));
    if (!file_) fail("cannot be made", errno);
    if (compression == Compression::none) return;
    pack_           = std::make_unique<Pack>();
    auto const bits = compression == Compression::gzip ? 15 + 16 : 15;
    if (deflateInit2(&pack_->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw OutOfMemory{"no memory to pack " + path_.string() + "."};
  }

  void write(ConstBytes record) {
    CHORALE_EXPECTS(file_ != nullptr, path_.string() + ": a record is written after close()");
    auto const length = little_endian(std::uint64_t{record.size()});
    put(length, Z_NO_FLUSH);
    put(little_endian(detail::masked(crc32c(length))), Z_NO_FLUSH);
    put(record, Z_NO_FLUSH);
    put(little_endian(detail::masked(crc32c(record))), Z_NO_FLUSH);
    ++records_;
  }

  /// Records written so far.
  std::uint64_t records() const { return records_; }

  /// Hands all records to the system; throws BadFile if that fails. Later calls do nothing.
  void close() {
    if (!file_) return;
    if (pack_) put({}, Z_FINISH);
    if (std::fclose(file_.release()) != 0) fail("cannot be finished", errno);
  }

 private:
  template <class T>
  static std::array<std::byte, sizeof(T)> little_endian(T value) {
    auto bytes = std::array<std::byte, sizeof(T)>{};
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::byte>(value >> 8 * i & 0xFF);
    return bytes;
  }

  void put(ConstBytes bytes, int flush) {
    if (!pack_) return to_file(bytes);
    auto& z  = pack_->z;
    auto out = std::array<std::byte, 1 << 14>{};
    do {
      auto const part = bytes.first(std::min(bytes.size(), std::size_t{1} << 30));         // zlib counts in 32 bits
      z.next_in       = reinterpret_cast<Bytef*>(const_cast<std::byte*>(part.data()));     // only read
      z.avail_in      = static_cast<uInt>(part.size());
      do {
        z.next_out  = reinterpret_cast<Bytef*>(out.data());
        z.avail_out = static_cast<uInt>(out.size());
        deflate(&z, flush);
        to_file(ConstBytes{out}.first(out.size() - z.avail_out));
      } while (z.avail_out == 0);
      bytes = bytes.subspan(part.size());
    } while (!bytes.empty());
  }

  void to_file(ConstBytes bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail("cannot be written", errno);
  }

  [[noreturn]] void fail(std::string const& what, int number) const {
    throw BadFile{path_.string() + ": " + what + " after " + std::to_string(records_) +
                      " records: " + std::generic_category().message(number) + ".",
                  "a folder that exists and may be written, with room in it."};
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Pack {
    z_stream z{};
    ~Pack() { deflateEnd(&z); }
  };

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<Pack> pack_;                             // zlib's state points to itself: it must not move
  std::uint64_t records_ = 0;
};

}  // namespace chorale::data
