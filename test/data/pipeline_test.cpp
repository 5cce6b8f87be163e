// SPDX-License-Identifier: Apache-2.0
#include "folder.hpp"
#include "sources.hpp"

#include <chorale/data/digits.hpp>
#include <chorale/data/formats/files.hpp>
#include <chorale/data/formats/image.hpp>
#include <chorale/data/formats/tf_example.hpp>
#include <chorale/data/formats/tfrecord.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace chorale;

namespace {

/// n drawn digits, in gzipped files of TFRecords.
void write_digits(sources::Folder const& in, std::size_t n, std::size_t files) {
  auto stream = data::digits(n, 1).stream(0);
  auto row    = Sample<std::uint8_t, std::uint8_t>{};
  for (std::size_t f = 0; f < files; ++f) {
    auto to         = data::TfRecordWriter{in.path() / ("digits-" + std::to_string(f)), data::Compression::gzip};
    auto const mine = share(n, static_cast<int>(f), static_cast<int>(files));
    for (auto i = mine.begin; i < mine.end; ++i) {
      REQUIRE(stream.next(row));
      auto example              = data::Example{};
      example.features["image"] = std::vector<std::string>{{row.x.begin(), row.x.end()}};
      example.features["label"] = std::vector<std::int64_t>{row.y[0]};
      to.write(example.bytes());
    }
    to.close();
  }
}

struct Batches {
  std::vector<float> x;
  std::vector<int> y;
  std::vector<std::size_t> rows;
  friend bool operator==(Batches const&, Batches const&) = default;
};

/// From files to batches of flipped and cropped images.
Batches pass(sources::Folder const& in, std::size_t threads, std::size_t ahead, std::size_t epoch) {
  auto const augment = [](auto const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) {
    auto const image  = data::ImageView<std::uint8_t>{row.x, {28, 28, 1}};
    auto const random = at.random(Seed{2});
    auto part         = std::vector<std::uint8_t>{};
    data::crop(image, data::random_box(image.shape, 24, 24, random), part);
    data::rescale(data::ImageView<std::uint8_t>{part, {24, 24, 1}}, 1.0F / 255, 0, x);
    if (random.uniform(2) < 0.5F) {
      auto const copy = x;
      data::flip_left_right(data::ImageView<float>{copy, {24, 24, 1}}, x);
    }
    y.assign(row.y.begin(), row.y.end());
  };
  auto const files   = data::list_files((in.path() / "digits-*").string());
  auto const records = data::tfrecords(files, {.compression = data::Compression::gzip},
                                       {.cycle = 3, .block = 2, .shuffle = Seed{1}}, ahead);
  auto const rows    = records
                        .map<std::uint8_t, int>(data::Fields{.x = "image", .y = "label", .width = 784},
                                                {.threads = threads, .ahead = ahead})
                        .shuffle(20, Seed{1})
                        .map(augment, {.threads = threads})
                        .batch(16)
                        .prefetch(2);
  auto stream = rows.stream(epoch);
  auto all    = Batches{};
  for (Batch batch; stream.next(batch);) {
    all.x.insert(all.x.end(), batch.x.begin(), batch.x.end());
    all.y.insert(all.y.end(), batch.y.begin(), batch.y.end());
    all.rows.push_back(batch.rows);
  }
  return all;
}

}  // namespace

TEST_CASE("from packed files to batches, no number of threads changes a bit", "[data][pipeline]") {
  auto const in = sources::Folder{};
  write_digits(in, 100, 5);
  auto const one = pass(in, 1, 1, 0);
  CHECK(one.rows == std::vector<std::size_t>{16, 16, 16, 16, 16, 16, 4});
  CHECK(one.x.size() == 100 * 24 * 24);
  for (std::size_t const threads : {2U, 3U, 7U})
    for (std::size_t const ahead : {1U, 5U, 40U}) CHECK(pass(in, threads, ahead, 0) == one);
  auto const other = pass(in, 4, 8, 1);
  CHECK(other != one);
  CHECK(pass(in, 1, 1, 1) == other);

  auto expected = std::vector<int>(10), seen = std::vector<int>(10);
  auto digits = data::digits(100, 1).stream(0);
  for (Sample<std::uint8_t, std::uint8_t> row; digits.next(row);) ++expected[row.y[0]];
  for (auto const label : other.y) ++seen.at(static_cast<std::size_t>(label));
  CHECK(seen == expected);
}
