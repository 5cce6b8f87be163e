// SPDX-License-Identifier: Apache-2.0
// A little over 300 lines: one format, read and written.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/formats/skip_broken.hpp>
#include <chorale/data/stages/interleave.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale::data {

/// How TFRecord files are read.
struct TfRecordOptions {
  Compression compression = Compression::none;     // of the whole file
  std::size_t max_record  = std::size_t{1} << 30;  // bytes; a longer record is an error
  std::shared_ptr<Skipped> skipped{};              // null: damage is an error; else it is skipped and counted
};

namespace detail {

/// The checksum as it is stored: checksums of data that contains checksums would have bad properties.
constexpr std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

template <class T> T little_endian(ConstBytes bytes) {
  auto value = T{0};
  for (auto i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | std::to_integer<T>(bytes[i]));
  return value;
}

}  // namespace detail

/// The records of one TFRecord file.
///
///   [length u64] [masked crc of these 8 bytes u32] [data] [masked crc of the data u32]     little-endian, repeated
///
/// cost    a record of a plain file stays where it was read, unless it is longer than ByteSource's buffer; others are
///         copied into a buffer that grows to the longest record that the file really has
/// throws  BadFile with file, record and byte. After a record whose data is damaged, reading can go on; after any
///         other damage, and after a read error, the reader is at its end
/// source  TFRecord as in tensorflow/core/lib/io/record_reader.h
class TfRecordReader {
 public:
  explicit TfRecordReader(std::filesystem::path file, TfRecordOptions options = {})
      : options_{std::move(options)}, source_{std::move(file), options_.compression} {}

  /// Reads the next record, valid until the next call. False at the end of the file.
  bool next(ConstBytes& out) {
    while (!ended_) {
      try {
        ended_ = true;  // unless a whole record was read
        source_.part("record", ++count_ - 1);
        auto const found = read();
        ended_           = found == Found::nothing;
        if (found == Found::nothing) return false;
        if (found == Found::damaged) complain_about_data();
        out = data_;
        return true;
      } catch (BadFile const& why) {
        if (!options_.skipped || too_long_) throw;
        if (ended_) options_.skipped->rest(why);
        else options_.skipped->record(why);
      }
    }
    return false;
  }

  /// The number in the file of the record that next() gave, from 0; damaged records are counted.
  std::uint64_t record() const { return count_ - 1; }

 private:
  enum class Found { nothing, damaged, whole };

  Found read() {
    begin_            = source_.offset();
    auto const header = take(12);
    if (header.empty()) return Found::nothing;
    if (header.size() < 12) cut(12, header.size(), "length and its checksum", begin_);
    auto const length = detail::little_endian<std::uint64_t>(header.first(8));
    auto const stored = detail::little_endian<std::uint32_t>(header.last(4));
    if (auto const crc = detail::masked(crc32c(header.first(8))); crc != stored)
      source_.fail(
          begin_ + 8,
          "the checksum of the length is " + std::to_string(stored) + ", but its bytes have " + std::to_string(crc),
          advice());
    too_long_ = length > std::min<std::uint64_t>(options_.max_record, SIZE_MAX - 4);
    if (too_long_)
      source_.fail(begin_,
                   "a record of " + std::to_string(length) + " bytes, but at most " +
                       std::to_string(options_.max_record) + " are read",
                   "TfRecordOptions{.max_record = " + std::to_string(length) + "}");
    auto const n    = static_cast<std::size_t>(length);
    auto const rest = take(n + 4);
    if (rest.size() < n) cut(n, rest.size(), "data", begin_ + 12);
    if (rest.size() < n + 4) cut(4, rest.size() - n, "checksum of the data", begin_ + 12 + length);
    data_   = rest.first(n);
    stored_ = detail::little_endian<std::uint32_t>(rest.last(4));
    return stored_ == detail::masked(crc32c(data_)) ? Found::whole : Found::damaged;
  }

  /// Reads the next n bytes, valid until the next call; fewer only at the end of the file.
  ConstBytes take(std::size_t n) {
    if (source_.can_view(n)) return source_.view(n);
    copy_.clear();
    source_.append(copy_, n);
    return copy_;
  }

  [[noreturn]] void cut(std::size_t need, std::size_t got, std::string const& what, std::uint64_t at) const {
    source_.fail(
        at, std::to_string(need) + " bytes are needed (" + what + "), but the file ends after " + std::to_string(got),
        "to wait while it is still written, else to fetch it again");
  }
  [[noreturn]] void complain_about_data() const {
    source_.fail(begin_ + 12,
                 "the checksum of " + std::to_string(data_.size()) + " bytes of data is " + std::to_string(stored_) +
                     ", but they have " + std::to_string(detail::masked(crc32c(data_))),
                 "to fetch it again, or TfRecordOptions::skipped, which leaves such records out");
  }
  std::string advice() const {
    if (options_.compression == Compression::none && begin_ == 0) {
      if (source_.looks_like_gzip()) return "TfRecordOptions{.compression = Compression::gzip}: it begins like one";
      if (source_.looks_like_zlib()) return "TfRecordOptions{.compression = Compression::zlib}: it begins like one";
    }
    return begin_ == 0 ? "a TFRecord file" : ByteSource::again;
  }

  TfRecordOptions options_;
  ByteSource source_;
  std::vector<std::byte> copy_;
  ConstBytes data_;                      // of the record
  std::uint64_t begin_ = 0, count_ = 0;  // offset of the record; records begun
  std::uint32_t stored_ = 0;             // checksum of the data
  bool ended_ = false, too_long_ = false;
};

/// A TFRecord file as a dataset of rows: x is the record, y is {number of the file, number in the file}.
class TfRecordFile : public Pipe<TfRecordFile> {
 public:
  using element                = Sample<std::byte, std::uint64_t>;
  static constexpr bool stable = false;

  TfRecordFile(std::filesystem::path file, std::uint64_t number, TfRecordOptions options)
      : file_{std::move(file)}, number_{number}, options_{std::move(options)} {}

  class Stream {
   public:
    Stream(std::filesystem::path file, std::uint64_t number, TfRecordOptions options)
        : file_{std::move(file)}, options_{std::move(options)}, place_{number, 0} {}

    bool next(element& out) {
      if (!reader_) reader_.emplace(file_, options_);
      auto data = ConstBytes{};
      if (!reader_->next(data)) return false;
      place_[1] = reader_->record();
      out       = {data, place_};
      return true;
    }

   private:
    std::filesystem::path file_;
    TfRecordOptions options_;
    std::array<std::uint64_t, 2> place_;
    std::optional<TfRecordReader> reader_;
  };

  Stream stream(std::size_t) const { return {file_, number_, options_}; }
  std::optional<std::size_t> size() const { return {}; }  // known only after reading

  void describe(std::vector<std::string>& lines) const { lines.push_back(detail::file_text(file_)); }

 private:
  std::filesystem::path file_;
  std::uint64_t number_;
  TfRecordOptions options_;
};

namespace detail {

template <class Make>
auto record_files(std::vector<std::filesystem::path> const& files, TfRecordOptions const& options, Make make) {
  auto all = std::vector<decltype(make(TfRecordFile{{}, 0, {}}))>{};
  for (std::size_t i = 0; i < files.size(); ++i) all.push_back(make(TfRecordFile{files[i], i, options}));
  return all;
}

}  // namespace detail

/// The records of some files, how.cycle of them open at the same time, read in the thread of the reader.
///
///   auto rows = data::tfrecords(data::list_files("train-*.tfrecord"), {}, {.cycle = 4, .block = 16});
///
/// cost    records of plain files are not copied, and the system reads ahead: if it has the files in its cache, threads
///         would not be faster
/// order   the order of interleave
/// throws  BadFile, while reading, as TfRecordReader does
/// source  tf.data.TFRecordDataset(files)
inline auto tfrecords(std::vector<std::filesystem::path> const& files, TfRecordOptions const& options = {},
                      Interleave how = {}) {
  return interleave(detail::record_files(files, options, [](TfRecordFile f) { return f; }), how);
}

/// The records of some files, each open file read by its own thread: for packed files, and for slow storage.
///
/// ahead   records that wait for the reader, for each open file
/// order   the order of interleave, whatever the timing of the threads
/// source  tf.data.TFRecordDataset(files, num_parallel_reads), deterministic
inline auto tfrecords(std::vector<std::filesystem::path> const& files, TfRecordOptions const& options, Interleave how,
                      std::size_t ahead) {
  return interleave(detail::record_files(files, options, [&](TfRecordFile f) { return f.prefetch(ahead); }), how);
}

/// The records of some files in the order in which `threads` threads read them: a slow file delays no other.
///
/// order   none: y of a row identifies its record
inline auto tfrecords_in_any_order(std::vector<std::filesystem::path> const& files, TfRecordOptions const& options,
                                   std::size_t threads, std::size_t ahead = 256) {
  return gather(detail::record_files(files, options, [](TfRecordFile f) { return f; }), threads, ahead);
}

/// Writes a TFRecord file, record after record.
///
///   auto to = data::TfRecordWriter{"train-00.tfrecord"};   to.write(example.bytes());   to.close();
///
/// keeps   the file is whole after close(); without it, the last records may be missing
/// throws  BadFile with the file and the number of records written before, and when the path names a device, a
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
  template <class T> static std::array<std::byte, sizeof(T)> little_endian(T value) {
    auto bytes = std::array<std::byte, sizeof(T)>{};
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::byte>(value >> 8 * i & 0xFF);
    return bytes;
  }

  void put(ConstBytes bytes, int flush) {
    if (!pack_) return to_file(bytes);
    auto& z  = pack_->z;
    auto out = std::array<std::byte, 1 << 14>{};
    do {
      auto const part = bytes.first(std::min(bytes.size(), std::size_t{1} << 30));      // zlib counts in 32 bits
      z.next_in       = reinterpret_cast<Bytef*>(const_cast<std::byte*>(part.data()));  // only read
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
  std::unique_ptr<Pack> pack_;  // zlib's state points to itself: it must not move
  std::uint64_t records_ = 0;
};

}  // namespace chorale::data
