// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/random.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/stages/interleave.hpp>

#include <glob.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::data {

/// The files that match a pattern of the shell (*, ?, [a-z]), sorted by the bytes of their names.
///
///   auto files = data::list_files("train/part-*.tfrecord", Seed{1});
///
/// order   sorted, or shuffled as a function of (names, seed): the same on every machine that has the same files
/// throws  BadFile when there is none, or when a folder cannot be read
/// source  tf.data.Dataset.list_files, whose order differs between machines unless a seed is given
inline std::vector<std::filesystem::path> list_files(std::string const& pattern, std::optional<Seed> seed = {}) {
  struct Found : glob_t {
    Found() : glob_t{} {}
    ~Found() { globfree(this); }
    Found(Found const&)            = delete;
    Found& operator=(Found const&) = delete;
  } found;
  auto const said = ::glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found);
  if (said == GLOB_ABORTED) throw BadFile{pattern + ": a folder of it cannot be read.", "a folder that may be read."};
  if (said == GLOB_NOSPACE) throw OutOfMemory{"no memory to list " + pattern + "."};
  auto files = std::vector<std::filesystem::path>(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  std::erase_if(files, [](auto const& file) {
    auto code = std::error_code{};
    return std::filesystem::is_directory(file, code);
  });
  if (files.empty()) throw BadFile{pattern + ": no file matches.", "the same pattern with ls."};
  std::sort(files.begin(), files.end(), [](auto const& a, auto const& b) { return a.native() < b.native(); });
  constexpr auto purpose = std::uint64_t{0x6c697374} << 32;  // "list": used for nothing else
  if (seed) shuffle(files, Random{*seed, purpose});
  return files;
}

/// A checksum that ranks can compare: equal lists, in the same order, have the same checksum.
inline std::uint32_t checksum(std::vector<std::filesystem::path> const& files) {
  auto crc = std::uint32_t{0};
  for (auto const& file : files)  // with its final 0, which no name contains
    crc = crc32c(std::as_bytes(Span<char const>{file.c_str(), file.native().size() + 1}), crc);
  return crc;
}

/// A text file as a dataset of rows: x is a line without its end, y is {number of the file, number of the line}.
///
/// keeps   "\n" and "\r\n" end a line; the last one may lack it. Plain or gzipped
/// cost    memory for the longest line
/// throws  BadFile when the file cannot be read or a line is longer than max_line bytes
class TextFile : public Pipe<TextFile> {
 public:
  using element                = Sample<char, std::uint64_t>;
  static constexpr bool stable = false;

  TextFile(std::filesystem::path file, std::uint64_t number, std::size_t max_line)
      : file_{std::move(file)}, number_{number}, max_line_{max_line} {}

  class Stream {
   public:
    Stream(std::filesystem::path file, std::uint64_t number, std::size_t max_line)
        : file_{std::move(file)}, max_line_{max_line}, place_{number, 0} {}

    bool next(element& out) {
      if (!source_) source_.emplace(file_);
      source_->part("line", line_);
      line_text_.clear();
      while (!take_to_end_of_line())
        if (!refill()) {
          if (line_text_.empty()) return false;
          break;  // the last line has no end
        }
      if (!line_text_.empty() && line_text_.back() == '\r') line_text_.pop_back();
      place_[1] = line_++;
      out       = {line_text_, place_};
      return true;
    }

   private:
    bool take_to_end_of_line() {
      if (left_.empty()) return false;
      auto const* const end = static_cast<char const*>(std::memchr(left_.data(), '\n', left_.size()));
      auto const n          = end != nullptr ? static_cast<std::size_t>(end - left_.data()) : left_.size();
      if (n > max_line_ - line_text_.size())
        source_->fail("a line of more than " + std::to_string(max_line_) + " bytes",
                      "a text file, or a larger max_line");
      line_text_.insert(line_text_.end(), left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(n));
      left_ = left_.subspan(n + (end != nullptr ? 1 : 0));
      return end != nullptr;
    }
    bool refill() {
      buffer_.resize(std::size_t{1} << 16);
      left_ = Span<char const>{buffer_}.first(source_->read(std::as_writable_bytes(Span<char>{buffer_})));
      return !left_.empty();
    }

    std::filesystem::path file_;
    std::size_t max_line_;
    std::array<std::uint64_t, 2> place_;
    std::uint64_t line_ = 0;
    std::optional<ByteSource> source_;
    std::vector<char> buffer_, line_text_;
    Span<char const> left_;  // of buffer_
  };

  Stream stream(std::size_t) const { return {file_, number_, max_line_}; }
  std::optional<std::size_t> size() const { return {}; }  // known only after reading

  void describe(std::vector<std::string>& lines) const { lines.push_back(detail::file_text(file_)); }

 private:
  std::filesystem::path file_;
  std::uint64_t number_;
  std::size_t max_line_;
};

/// The lines of some text files.
///
/// order   one file after another, unless `how` says otherwise
/// source  tf.data.TextLineDataset
inline Interleaved<TextFile> text_lines(std::vector<std::filesystem::path> const& files, Interleave how = {},
                                        std::size_t max_line = std::size_t{1} << 24) {
  auto all = std::vector<TextFile>{};
  for (std::size_t i = 0; i < files.size(); ++i) all.emplace_back(files[i], i, max_line);
  return interleave(std::move(all), how);
}

}  // namespace chorale::data
