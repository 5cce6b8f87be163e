// SPDX-License-Identifier: Apache-2.0
#include "test/data/folder.hpp"
#include "test/data/sources.hpp"
#include "test/support/mnist.hpp"

#include <chorale/data/formats/idx.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace idx_test {

using namespace chorale;
using Catch::Matchers::Contains;
using sources::Content;
using sources::Folder;

namespace {

Content idx_bytes(std::uint8_t type, std::vector<std::uint32_t> const& sizes, std::size_t data) {
  auto bytes = Content{0, 0, type, static_cast<std::uint8_t>(sizes.size())};
  for (auto const size : sizes)
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
  for (std::size_t i = 0; i < data; ++i) bytes.push_back(static_cast<std::uint8_t>(i % 10));
  return bytes;
}
Content images(std::uint32_t n, std::uint32_t height = 2, std::uint32_t width = 3) {
  return idx_bytes(8, {n, height, width}, std::size_t{n} * height * width);
}
Content labels(std::uint32_t n) { return idx_bytes(8, {n}, n); }

/// The message of the BadFile that a broken images file gives.
std::string complaint(Folder const& in, std::string const& images_file) {
  try {
    data::idx(images_file, in.plain("good_labels", labels(4)));
  } catch (BadFile const& error) { return error.what(); }
  return "no complaint";
}
std::string complaint(Content const& broken) {
  auto const in = Folder{};
  return complaint(in, in.plain("images", broken));
}

}  // namespace

TEST_CASE("images and labels are read from plain and from gzipped files alike", "[data]") {
  auto const in = Folder{};
  for (auto const& file : {in.plain("i", images(4)), in.gzipped("i.gz", images(4))}) {
    auto const rows = data::idx(file, in.gzipped("l.gz", labels(4)));
    CHECK(rows.size() == 4);
    auto stream = rows.stream(0);
    auto row    = Sample<std::uint8_t, std::uint8_t>{};
    for (std::size_t i = 0; i < 4; ++i) {
      REQUIRE(stream.next(row));
      CHECK(row.y[0] == i);
      REQUIRE(row.x.size() == 6);
      for (std::size_t k = 0; k < 6; ++k) CHECK(row.x[k] == (i * 6 + k) % 10);
    }
    CHECK_FALSE(stream.next(row));
  }
}

TEST_CASE("mnist finds the four files by name, with either suffix", "[data]") {
  auto const in = Folder{};
  in.plain("train-images-idx3-ubyte", images(6));
  in.gzipped("train-labels-idx1-ubyte.gz", labels(6));
  CHECK(data::mnist(in.path(), data::train).size() == 6);
  CHECK_THROWS_WITH(data::mnist(in.path(), data::test),
                    Contains("has neither t10k-images-idx3-ubyte nor t10k-images-idx3-ubyte.gz") && Contains("Try: "));
  CHECK_THROWS_WITH(data::mnist(in.path() / "absent", data::test), Contains("absent: is not a folder"));
}

TEST_CASE("a file that is not there is named", "[data]") {
  auto const in = Folder{};
  CHECK_THAT(complaint(in, (in.path() / "absent").string()), Contains("absent: cannot be opened: No such file"));
  CHECK_THAT(complaint(in, in.path().string()), Contains("is a folder"));
}

TEST_CASE("a header that is cut off or of another format is refused at its byte", "[data]") {
  CHECK_THAT(complaint({}), Contains("images: byte 0: the header of an IDX file has 16 bytes"));
  CHECK_THAT(complaint({0, 0, 8}), Contains("byte 3: the header of an IDX file has 16 bytes"));
  CHECK_THAT(complaint({0, 0, 8, 3, 0, 0}), Contains("byte 6: the header has 16 bytes"));
  CHECK_THAT(complaint({'P', 'K', 3, 4}),
             Contains("byte 0: an IDX file begins with 0x00 0x00, this one with 0x50 0x4b"));
  CHECK_THAT(complaint(idx_bytes(0x0d, {4, 2, 3}, 96)), Contains("byte 2: the elements have type 0x0d"));
  CHECK_THAT(complaint(labels(4)), Contains("byte 3: 1 dimensions, but 3 are needed"));
  CHECK_THAT(complaint(idx_bytes(8, {0, 2, 3}, 0)), Contains("byte 4: dimension 1 has size 0"));
}

TEST_CASE("sizes and data that do not agree are refused with both numbers", "[data]") {
  auto cut = images(4), longer = images(4);
  cut.pop_back();
  longer.push_back(0);
  CHECK_THAT(complaint(cut),
             Contains("byte 39: the header promises 4 x 2 x 3 = 24 bytes of data, but the file ends after 23"));
  CHECK_THAT(complaint(longer), Contains("byte 40: the data of 4 x 2 x 3 = 24 bytes ends here, but the file goes on"));
}

TEST_CASE("a header that promises far more than there is takes no memory for it", "[data]") {
  CHECK_THAT(complaint(idx_bytes(8, {0xFFFFFFFF, 28, 28}, 84)),
             Contains("byte 100: the header promises 4294967295 x 28 x 28 = 3367254359280 bytes") &&
                 Contains("ends after 84"));
  CHECK_THAT(complaint(idx_bytes(8, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, 84)),
             Contains("byte 4: the sizes 4294967295 x 4294967295 are more than 2^63"));
}

TEST_CASE("a gzip too small for what its header promises is refused before it is unpacked", "[data]") {
  auto const in   = Folder{};
  auto const bomb = in.gzipped("bomb.gz", idx_bytes(8, {0xFFFFFFFF, 28, 28}, 4U << 20));  // of 4 MiB
  auto const size = std::filesystem::file_size(bomb);
  REQUIRE(size < (1U << 20));
  CHECK_THAT(complaint(in, bomb),
             Contains("bomb.gz: byte 16: the header promises 4294967295 x 28 x 28 = 3367254359280 bytes of data, but a "
                      "file of " +
                      std::to_string(size) + " packed bytes holds at most " + std::to_string(size * 1032)));
}

TEST_CASE("a gzip is unpacked no further than its header promises", "[data]") {
  auto const in = Folder{};
  auto longer   = images(4);
  longer.resize(longer.size() + (8U << 20));  // zeros, which are packed well
  CHECK_THAT(complaint(in, in.gzipped("longer.gz", longer)),
             Contains("longer.gz: byte 40: the data of 4 x 2 x 3 = 24 bytes ends here, but the file goes on"));
  auto const most = in.gzipped("most.gz", images(1'000'000, 1, 1));  // nothing is refused that deflate can do
  CHECK(data::idx(most, in.gzipped("l.gz", labels(1'000'000))).size() == 1'000'000);
  auto zeros = idx_bytes(8, {1, 4096, 4096}, 0);
  zeros.resize(zeros.size() + (16U << 20));
  CHECK(data::idx(in.gzipped("zeros.gz", zeros), in.plain("one", labels(1))).size() == 1);
}

TEST_CASE("a gzip that is none, damaged or cut off is refused", "[data]") {
  auto const in = Folder{};
  CHECK_THAT(complaint(in, in.plain("none.gz", images(4))),
             Contains("none.gz: byte 0: no gzip, which begins with the bytes 1f 8b"));

  auto const whole = Folder::bytes_of(in.gzipped("whole.gz", images(5'000)));
  auto cut         = whole;
  cut.resize(whole.size() / 2);
  CHECK_THAT(complaint(in, in.plain("cut.gz", cut)),
             Contains("cut.gz: byte ") && Contains("the gzip ends in the middle"));
  auto damaged = whole;
  damaged[whole.size() - 6] ^= 0xFF;  // a byte of the check sum
  CHECK_THAT(complaint(in, in.plain("damaged.gz", damaged)),
             Contains("damaged.gz: byte ") && Contains("the gzip is damaged"));
}

TEST_CASE("images and labels of different splits are refused with both counts", "[data]") {
  CHECK_THAT(complaint(images(5)), Contains("byte 4: 5 images, but ") && Contains("good_labels has 4 labels"));
}

TEST_CASE("a label out of range is refused at its byte", "[data]") {
  auto const in = Folder{};
  auto const i = in.plain("i", images(6)), l = in.plain("l", labels(6));
  CHECK_THROWS_WITH(data::idx(i, l, {.classes = 5}), Contains("l: byte 13: label 5, but there are 5 classes"));
  CHECK(data::idx(i, l, {.classes = 6}).size() == 6);
  CHECK_THROWS_AS(data::idx(i, l, {.classes = 0}), BadArgument);
}

TEST_CASE("the real MNIST is read as its authors describe it", "[data][golden]") {
  auto const folder = mnist::folder_or_skip("the real MNIST is read as its authors describe it");
  if (!folder) return;
  auto const first = std::array<std::vector<int>, 2>{{{5, 0, 4, 1, 9}, {7, 2, 1, 0, 4}}};  // as tutorials show them
  auto const sizes = std::array<std::size_t, 2>{60'000, 10'000};
  for (auto const split : {data::train, data::test}) {
    auto const rows = data::mnist(*folder, split).map(data::scale);
    CHECK(rows.size() == sizes[split]);
    auto stream = rows.batch(5).stream(0);
    auto batch  = Batch{};
    REQUIRE(stream.next(batch));
    CHECK(std::vector<int>(batch.y.begin(), batch.y.end()) == first[split]);
    CHECK(batch.x.size() == 5 * 784);
  }
  auto sum    = 0.0;
  auto stream = data::mnist(*folder, data::train).stream(0);
  for (Sample<std::uint8_t, std::uint8_t> row; stream.next(row);)
    for (auto const p : row.x) sum += p;
  CHECK(sum / 255 / 784 / 60'000 == Approx(0.1307).margin(5e-5));  // the mean that torchvision normalises with
}

}  // namespace idx_test
