// SPDX-License-Identifier: Apache-2.0
#include "test/data/folder.hpp"

#include <chorale/data/formats/cifar.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace cifar_test {

using namespace chorale;
using Catch::Matchers::Contains;
using sources::Content;
using sources::Folder;

namespace {

/// An image whose red is `shade`, green shade + 1 and blue shade + 2, but for its second pixel, which is 9, 8, 7.
Content image(std::vector<std::uint8_t> const& labels, std::uint8_t shade) {
  auto bytes = Content{labels};
  for (std::uint8_t colour = 0; colour < 3; ++colour) {
    bytes.insert(bytes.end(), 1024, static_cast<std::uint8_t>(shade + colour));
    bytes[bytes.size() - 1023] = static_cast<std::uint8_t>(9 - colour);
  }
  return bytes;
}

Content operator+(Content a, Content const& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string complaint(Content const& content) {
  auto const in = Folder{};
  in.plain("test_batch.bin", content);
  try {
    data::cifar10(in.path(), data::test);
  } catch (BadFile const& error) { return error.what(); }
  return "no complaint";
}

}  // namespace

TEST_CASE("images of CIFAR-10 come as pixels, in the order of the files", "[data][cifar]") {
  auto const in = Folder{};
  for (std::uint8_t i = 1; i <= 5; ++i) {
    auto const name    = "data_batch_" + std::to_string(i) + ".bin";
    auto const content = image({i}, static_cast<std::uint8_t>(10 * i)) + image({0}, 200);
    if (i == 3) in.gzipped(name + ".gz", content);
    else in.plain(name, content);
  }
  auto const rows = data::cifar10(in.path(), data::train);
  CHECK(rows.size() == 10);
  auto stream = rows.stream(0);
  auto row    = Sample<std::uint8_t, std::uint8_t>{};
  for (std::uint8_t i = 1; i <= 5; ++i) {
    REQUIRE(stream.next(row));
    REQUIRE(row.x.size() == 3072);
    CHECK(row.y[0] == i);
    CHECK((row.x[0] == 10 * i && row.x[1] == 10 * i + 1 && row.x[2] == 10 * i + 2));
    CHECK((row.x[3] == 9 && row.x[4] == 8 && row.x[5] == 7));
    CHECK((row.x[3069] == 10 * i && row.x[3071] == 10 * i + 2));
    REQUIRE(stream.next(row));
    CHECK((row.y[0] == 0 && row.x[0] == 200));
  }
  CHECK_FALSE(stream.next(row));
}

TEST_CASE("images of CIFAR-100 have two labels", "[data][cifar]") {
  auto const in = Folder{};
  in.plain("train.bin", image({19, 99}, 1) + image({0, 5}, 2));
  in.plain("test.bin", image({20, 5}, 1));
  auto const label = [&](data::CifarLabels which) {
    auto const rows = data::cifar100(in.path(), data::train, which);
    auto stream     = rows.stream(0);
    auto row        = Sample<std::uint8_t, std::uint8_t>{};
    REQUIRE(stream.next(row));
    CHECK(row.x[0] == 1);
    return row.y[0];
  };
  CHECK(label(data::CifarLabels::fine) == 99);
  CHECK(label(data::CifarLabels::coarse) == 19);
  CHECK_THROWS_WITH(data::cifar100(in.path(), data::test),
                    Contains("test.bin: image 0, byte 0: label 20, but there are 20 classes"));
}

TEST_CASE("files that are no CIFAR are refused with image and byte", "[data][cifar]") {
  auto cut = image({1}, 1) + image({2}, 2);
  cut.pop_back();
  CHECK_THAT(complaint({}),
             Contains("test_batch.bin: image 0, byte 0: an image has 3073 bytes, but the file ends after 0"));
  CHECK_THAT(complaint(cut), Contains("image 1, byte 3073: an image has 3073 bytes, but the file ends after 3072"));
  CHECK_THAT(complaint(image({1}, 1) + image({10}, 2)), Contains("image 1, byte 3073: label 10, but there are 10"));
  auto const in = Folder{};
  CHECK_THROWS_WITH(data::cifar10(in.path(), data::train), Contains("data_batch_1.bin: cannot be opened"));
}

}  // namespace cifar_test
