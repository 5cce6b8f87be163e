// SPDX-License-Identifier: Apache-2.0
#include "test/support/folder.hpp"

#include <chorale/data/formats/image_folder.hpp>

#include <catch2/catch.hpp>

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace image_folder_test {

using namespace chorale;
using Catch::Matchers::Contains;
using Pixels = std::vector<std::uint8_t>;

namespace {

void write(std::filesystem::path const& path, data::ImageShape shape, Pixels const& pixels, bool png = true) {
  std::filesystem::create_directories(path.parent_path());
  auto const image = data::ImageView<std::uint8_t>{pixels, shape};
  auto const bytes = png ? data::encode_png(image) : data::encode_jpeg(image);
  std::ofstream{path, std::ios::binary}.write(reinterpret_cast<char const*>(bytes.data()),
                                              static_cast<std::streamsize>(bytes.size()));
}

struct Read {
  std::vector<Pixels> pixels;
  std::vector<int> labels;
};
Read all_of(auto const& dataset) {
  auto read   = Read{};
  auto row    = data::ImageFolder::element{};
  auto stream = dataset.stream(0);
  while (stream.next(row)) read.pixels.emplace_back(row.x.begin(), row.x.end()), read.labels.push_back(row.y[0]);
  return read;
}

}  // namespace

TEST_CASE("a folder of pictures for each class becomes rows with labels", "[data][image]") {
  auto const folder = test::Folder{};
  auto const root   = folder / "pictures";
  auto const rgb    = Pixels{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30};
  write(root / "dog" / "b.png", {2, 2, 3}, rgb);
  write(root / "dog" / "a.PNG", {2, 2, 1}, {0, 50, 100, 250});  // grey
  write(root / "cat" / "1.png", {2, 2, 4}, {9, 8, 7, 255, 1, 2, 3, 255, 4, 5, 6, 255, 7, 7, 7, 255});
  write(root / "cat" / "2.png", {4, 4, 3}, Pixels(48, 80));  // scaled
  write(root / "owl" / "x.jpeg", {2, 2, 3}, Pixels(12, 200), false);
  std::ofstream{root / "cat" / "notes.txt"} << "no picture";
  std::ofstream{root / "README"} << "no class";
  std::filesystem::create_directories(root / ".cache");
  auto const dataset = data::image_folder(root, {.shape = {2, 2, 3}});
  CHECK(dataset.classes() == std::vector<std::string>{"cat", "dog", "owl"});
  CHECK(*dataset.size() == 5);
  auto const read = all_of(dataset);
  CHECK(read.labels == std::vector<int>{0, 0, 1, 1, 2});
  REQUIRE(read.pixels.size() == 5);
  CHECK(read.pixels[0] == Pixels{9, 8, 7, 1, 2, 3, 4, 5, 6, 7, 7, 7});
  CHECK(read.pixels[1] == Pixels(12, 80));
  CHECK(read.pixels[2] == Pixels{0, 0, 0, 50, 50, 50, 100, 100, 100, 250, 250, 250});
  CHECK(read.pixels[3] == rgb);
  CHECK(read.pixels[4] == Pixels(12, 200));
  CHECK(all_of(dataset.cache()).pixels == read.pixels);
  auto lines = std::vector<std::string>{};
  dataset.describe(lines);
  CHECK_THAT(lines.at(0), Contains("5 pictures of 3 classes as 2 x 2 x 3, names "));
}

TEST_CASE("hidden files are no data, and folders in a class belong to it", "[data][image]") {
  auto const folder = test::Folder{};
  auto const root   = folder / "pictures";
  auto const grey   = [](std::uint8_t value) { return Pixels(4, value); };
  write(root / "cat" / "1.png", {2, 2, 1}, grey(1));
  write(root / "cat" / "more" / "2.png", {2, 2, 1}, grey(2));
  write(root / "cat" / "more" / "still" / "3.png", {2, 2, 1}, grey(3));
  write(root / "cat" / "zoo.png", {2, 2, 1}, grey(4));
  write(root / "dog" / "1.png", {2, 2, 1}, grey(5));
  std::ofstream{root / "cat" / "._1.png"} << "resource fork";
  std::ofstream{root / "cat" / "more" / ".hidden.jpg"} << "no picture";
  std::filesystem::create_directories(root / "cat" / ".ipynb_checkpoints");
  std::ofstream{root / "cat" / ".ipynb_checkpoints" / "1.png"} << "no picture";
  std::filesystem::create_directory_symlink(root / "cat", root / "cat" / "more" / "loop");
  std::filesystem::create_directory_symlink(root / "dog", root / "cat" / "too");
  auto const dataset = data::image_folder(root, {.shape = {2, 2, 1}});
  auto const read    = all_of(dataset);
  CHECK(read.labels == std::vector<int>{0, 0, 0, 0, 0, 1});
  CHECK(read.pixels == std::vector<Pixels>{grey(1), grey(2), grey(3), grey(5), grey(4), grey(5)});
  auto const lines = [&] {
    auto all = std::vector<std::string>{};
    data::image_folder(root).describe(all);
    return all.at(0);
  };
  auto const before = lines();
  std::filesystem::rename(root / "cat" / "more", root / "cat" / "mare");  // other names
  CHECK(lines() != before);
}

TEST_CASE("files that cannot be read end the pass, or are left out and counted", "[data][image]") {
  auto const folder = test::Folder{};
  auto const root   = folder / "pictures";
  for (auto const* name : {"cat/1.png", "cat/3.png", "dog/2.png"}) write(root / name, {2, 2, 1}, Pixels(4, 9));
  std::ofstream{root / "cat" / "2.png"} << "not a picture";
  std::ofstream{root / "dog" / "0.gif"} << "GIF89a";
  REQUIRE(::mkfifo((root / "dog" / "1.jpg").c_str(), 0600) == 0);
  std::filesystem::create_symlink("nowhere", root / "dog" / "9.jpg");
  CHECK_THROWS_WITH(all_of(data::image_folder(root)), Contains("2.png: neither JPEG"));
  CHECK(*data::image_folder(root).size() == 7);
  auto const dataset = data::image_folder(root, {.on_unreadable = data::OnUnreadable::skip});
  CHECK(dataset.skipped().records() == 0);
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(all_of(dataset).labels == std::vector<int>{0, 0, 1});
    CHECK(dataset.skipped().records() == 4);
  }
  CHECK_THAT(dataset.skipped().first(), Contains("cat/2.png: neither JPEG"));
  CHECK_FALSE(dataset.size().has_value());
  std::filesystem::remove(root / "cat" / "2.png");
  CHECK_THROWS_WITH(all_of(data::image_folder(root)), Contains("0.gif: neither JPEG"));
  std::filesystem::remove(root / "dog" / "0.gif");
  CHECK_THROWS_WITH(all_of(data::image_folder(root)), Contains("1.jpg: is a FIFO, and only regular files are read"));
}

TEST_CASE("a folder that is no such folder is one sentence", "[data][image]") {
  auto const folder = test::Folder{};
  auto const root   = folder / "pictures";
  CHECK_THROWS_WITH(data::image_folder(root), Contains("pictures: cannot be read as a folder: No such file"));
  std::filesystem::create_directories(root);
  CHECK_THROWS_WITH(data::image_folder(root), Contains("pictures: has no folders."));
  std::filesystem::create_directories(root / "cat");
  CHECK_THROWS_WITH(data::image_folder(root), Contains("cat: has no .png, .jpg or .jpeg."));
  std::ofstream{root / "cat" / "1.png"} << "not a picture";
  CHECK_THROWS_WITH(all_of(data::image_folder(root)),
                    Contains("1.png: neither JPEG, which begins with ff d8, nor PNG"));
  CHECK_THROWS_WITH(data::image_folder(root, {.shape = {2, 2, 2}}), Contains("1 or 3 channels, but 2 are asked for"));
}

}  // namespace image_folder_test
