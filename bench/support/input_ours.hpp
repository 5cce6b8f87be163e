// SPDX-License-Identifier: Apache-2.0
//
// The input pipelines that bench/input measures, the files that they read, and how long a pass takes.
#pragma once

#include "report.hpp"

#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/data/formats/files.hpp>
#include <chorale/data/formats/image.hpp>
#include <chorale/data/formats/image_file.hpp>
#include <chorale/data/formats/tf_example.hpp>
#include <chorale/data/formats/tfrecord.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using namespace chorale;

inline constexpr std::size_t input_files = 4, input_rows = 60'000, input_width = 784;

/// Pictures of side x side, of which crop x crop are used.
struct Pictures {
  std::string kind;
  std::size_t side, crop, n;
};
inline Pictures const pictures = {"jpeg", 256, 224, 2048}, thumbnails = {"thumb", 64, 56, 4096};

/// A picture with edges, slopes and a little noise: about as many bytes as a photograph.
inline std::vector<std::byte> some_jpeg(std::uint64_t number, std::size_t side) {
  auto const random = Random{Seed{number}, 0};
  auto pixels       = std::vector<std::uint8_t>(side * side * 3);
  for (std::size_t row = 0; row < side; ++row)
    for (std::size_t column = 0; column < side; ++column)
      for (std::size_t c = 0; c < 3; ++c) {
        auto const at   = (row * side + column) * 3 + c;
        auto const edge = (row / 32 + column / 48 + number) % 3 * 40;
        pixels[at]      = static_cast<std::uint8_t>(edge + (row * (c + 1) + column) / 8 + random.below(at, 24));
      }
  return data::encode_jpeg({pixels, {side, side, 3}}, 90);
}

inline std::string input_file(std::string const& folder, std::string const& kind, std::size_t i) {
  return folder + "/" + kind + "-" + std::to_string(i);
}

/// Files of records of 4 and 64 KiB; of images, bare and in Examples.
///
/// part    of the records: 1 for all, 64 for the 64th part
inline void write_input_files(std::string const& folder, std::size_t part) {
  for (auto const& [kind, bytes] : {std::pair{"small", std::size_t{4} << 10}, {"large", std::size_t{64} << 10}})
    for (std::size_t f = 0; f < input_files; ++f) {
      auto to     = data::TfRecordWriter{input_file(folder, kind, f)};
      auto record = std::vector<std::byte>(bytes);
      for (std::size_t i = 0; i < (std::size_t{64} << 20) / bytes / part; ++i) {
        for (std::size_t k = 0; k < bytes; k += 61) record[k] = static_cast<std::byte>(i + k);
        to.write(record);
      }
      to.close();
    }
  for (std::size_t f = 0; f < input_files; ++f) {
    auto examples = data::TfRecordWriter{input_file(folder, "example", f)};
    for (auto const& all : {pictures, thumbnails}) {
      auto bare    = data::TfRecordWriter{input_file(folder, all.kind, f)};
      auto jpegs   = std::vector<std::vector<std::byte>>{};
      auto const n = all.n / input_files / part;
      for (std::size_t i = 0; i < std::min<std::size_t>(n, 64); ++i) jpegs.push_back(some_jpeg(64 * f + i, all.side));
      for (std::size_t i = 0; i < n; ++i) {
        auto const& jpeg = jpegs[i % jpegs.size()];
        bare.write(jpeg);
        if (all.kind != pictures.kind) continue;
        auto example              = data::Example{};
        example.features["image"] = std::vector<std::string>{{reinterpret_cast<char const*>(jpeg.data()), jpeg.size()}};
        example.features["label"] = std::vector<std::int64_t>{static_cast<std::int64_t>(i % 10)};
        examples.write(example.bytes());
      }
      bare.close();
    }
    examples.close();
  }
}

/// Decodes, crops, maybe flips, and scales to 0 … 1.
struct Augment {
  std::size_t side, crop;
  data::Image image{};

  template <class Row> void operator()(Row const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) {
    auto const random = at.random(Seed{1});
    auto const box    = data::random_box({side, side, 3}, crop, crop, random);
    data::decode_jpeg(std::as_bytes(row.x), image, {.box = box});
    auto const mirror = random.uniform(2) < 0.5F ? data::Mirror::columns : data::Mirror::none;
    data::rescale(image.view(), 1.0F / 255, 0, x, mirror);
    y.assign(row.y.begin(), row.y.begin() + 1);
  }
};

/// Rows per second of a pass over batches, the best of so many passes: the first ones fill caches.
template <class D> double rows_per_second(D const& batches, std::size_t passes) {
  auto best = 0.0;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    auto const start = std::chrono::steady_clock::now();
    auto stream      = batches.stream(pass);
    auto rows        = std::size_t{0};
    for (typename D::element batch; stream.next(batch);) {
      if constexpr (requires { batch.rows; }) rows += batch.rows;
      else ++rows;
    }
    best = std::max(best, static_cast<double>(rows) / seconds_since(start));
  }
  return best;
}

inline std::vector<std::filesystem::path> input_list(std::string const& folder, std::string const& kind) {
  return data::list_files(folder + "/" + kind + "-*");
}

/// Records per second when the bytes of the files are only copied out of the system's cache.
inline double file_cache_limit(std::string const& folder, std::string const& kind) {
  auto const files = input_list(folder, kind);
  auto records     = std::size_t{0};
  auto stream      = data::tfrecords(files).stream(0);
  for (Sample<std::byte, std::uint64_t> row; stream.next(row);) ++records;
  auto best   = 0.0;
  auto buffer = std::vector<std::byte>(std::size_t{1} << 18);
  for (int pass = 0; pass < 5; ++pass) {
    auto const start = std::chrono::steady_clock::now();
    for (auto const& file : files) {
      auto const from = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
      if (from < 0) throw std::runtime_error{"chorale: cannot open " + file.string()};
      while (::read(from, buffer.data(), buffer.size()) > 0) continue;
      ::close(from);
    }
    best = std::max(best, static_cast<double>(records) / seconds_since(start));
  }
  return best;
}

inline double our_input(std::string const& what, std::string const& folder, std::size_t threads) {
  auto const augment = Augment{pictures.side, pictures.crop};
  if (what == "tfrecord_4k") return rows_per_second(data::tfrecords(input_list(folder, "small")), 5);
  if (what == "tfrecord_64k") return rows_per_second(data::tfrecords(input_list(folder, "large")), 5);
  if (what == "jpeg") return rows_per_second(data::tfrecords(input_list(folder, "jpeg")).map(augment).batch(64), 4);
  if (what == "jpeg_64")
    return rows_per_second(
        data::tfrecords(input_list(folder, "thumb")).map(Augment{thumbnails.side, thumbnails.crop}).batch(64), 4);
  if (what == "shuffle" || what == "batch") {
    auto x = std::vector<std::uint8_t>(input_rows * input_width);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i % 251);
    auto const rows = data::from_tensors(std::move(x), std::vector<std::uint8_t>(input_rows), input_width);
    return what == "shuffle" ? rows_per_second(rows.shuffle(10'000, Seed{1}).batch(128), 8)
                             : rows_per_second(rows.batch(128), 8);
  }
  if (what != "chain") throw std::runtime_error{"chorale: no such case: " + what};
  auto const rows = data::tfrecords(input_list(folder, "example"), {}, {.cycle = 2, .block = 16, .shuffle = Seed{1}})
                        .map<std::uint8_t, int>(data::Fields{.x = "image", .y = "label"})
                        .shuffle(256, Seed{1});
  if (threads == 1) return rows_per_second(rows.map(augment).batch(64), 4);
  return rows_per_second(rows.map(augment, {.threads = threads}).batch(64).prefetch(2), 4);
}

/// Rows that take a while to make.
struct Slow : data::Pipe<Slow> {
  using element                = Sample<float, int>;
  static constexpr bool stable = true;

  std::chrono::nanoseconds each;
  std::size_t rows;

  Slow(std::chrono::nanoseconds e, std::size_t n) : each{e}, rows{n} {}

  struct Stream {
    std::chrono::nanoseconds each;
    std::size_t left;

    bool next(element& out) {
      if (left == 0) return false;
      --left;
      auto const end = std::chrono::steady_clock::now() + each;
      spin_until([&] { return std::chrono::steady_clock::now() >= end; });
      out = {};
      return true;
    }
  };

  Stream stream(std::size_t) const { return {each, rows}; }
  std::optional<std::size_t> size() const { return rows; }
};

/// Seconds of a step whose input and whose compute take so long each.
inline double prefetched_step(std::chrono::nanoseconds each, std::size_t steps) {
  auto stream      = Slow{each, steps}.prefetch(2).stream(0);
  auto const start = std::chrono::steady_clock::now();
  for (Sample<float, int> row; stream.next(row);) {
    auto const end = std::chrono::steady_clock::now() + each;
    spin_until([&] { return std::chrono::steady_clock::now() >= end; });
  }
  return seconds_since(start) / static_cast<double>(steps);
}

}  // namespace bench
