// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/image.hpp>
#include <chorale/data/formats/image_file.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale::data {

/// How the pictures of an image_folder become rows.
struct ImageFolderOptions {
  ImageShape shape{32, 32, 3};                             // of all rows; pictures of another size are scaled to it
  std::size_t max_pixels = std::size_t{1} << 26;           // of a file; see ImageOptions
};

/// Pictures in a folder for each class, read as a pass comes to them: see data::image_folder().
class ImageFolder : public Pipe<ImageFolder> {
  struct File {
    std::filesystem::path path;
    int label;
  };
  struct Found {
    std::vector<std::string> classes;
    std::vector<File> files;
  };

 public:
  using element = Sample<std::uint8_t, int>;
  static constexpr bool stable = false;

  ImageFolder(std::filesystem::path const& folder, ImageFolderOptions options)
      : found_{std::make_shared<Found>(find(folder))}, options_{options} {
    auto const channels = options.shape.channels;
    CHORALE_EXPECTS(channels == 1 || channels == 3,
                    "image_folder reads 1 or 3 channels, but " + std::to_string(channels) + " are asked for");
    CHORALE_EXPECTS(options.shape.size() > 0, "image_folder: a shape without pixels");
  }

  /// Names of the classes in the order of their labels.
  std::vector<std::string> const& classes() const& { return found_->classes; }
  std::vector<std::string> classes() && { return found_->classes; }

  class Stream {
   public:
    Stream(std::shared_ptr<Found const> found, ImageFolderOptions options)
        : found_{std::move(found)}, options_{options} {}

    /// throws  BadFile when a file is damaged, or no picture
    bool next(element& out) {
      if (at_ == found_->files.size()) return false;
      auto const& file = found_->files[at_++];
      auto const shape = options_.shape;
      image_ = read_image(file.path, {.channels = shape.channels, .max_pixels = options_.max_pixels});
      if (image_.shape != shape) {
        resize(image_.view(), shape.height, shape.width, scaled_);
        std::swap(image_.pixels, scaled_);
      }
      label_ = file.label;
      out    = {image_.pixels, {&label_, 1}};
      return true;
    }

   private:
    std::shared_ptr<Found const> found_;
    ImageFolderOptions options_;
    std::size_t at_ = 0;
    Image image_;
    std::vector<std::uint8_t> scaled_;
    int label_ = 0;
  };

  Stream stream(std::size_t) const { return {found_, options_}; }
  std::optional<std::size_t> size() const { return found_->files.size(); }

  void describe(std::vector<std::string>& lines) const {
    auto crc = std::uint32_t{0};
    for (auto const& [path, label] : found_->files) {
      auto const name = found_->classes[static_cast<std::size_t>(label)] + "/" + path.filename().string();
      crc = crc32c(std::as_bytes(Span<char const>{name.c_str(), name.size() + 1}), crc);     // with its final 0
    }
    auto const& [height, width, channels] = options_.shape;
    lines.push_back(std::to_string(found_->files.size()) + " pictures of " + std::to_string(found_->classes.size()) +
                    " classes as " + std::to_string(height) + " x " + std::to_string(width) + " x " +
                    std::to_string(channels) + ", names " + std::to_string(crc));
  }

 private:
  static bool is_picture(std::filesystem::path const& file) {
    auto ending = file.extension().string();
    std::ranges::transform(ending, ending.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    return std::ranges::count(std::array<std::string_view, 3>{".png", ".jpg", ".jpeg"}, ending) > 0;
  }
  /// What is in a folder, sorted by the bytes of names.
  static std::vector<std::filesystem::path> in(std::filesystem::path const& folder, auto const& wanted) {
    auto code = std::error_code{};
    auto all  = std::vector<std::filesystem::path>{};
    for (auto at = std::filesystem::directory_iterator{folder, code};
         !code && at != std::filesystem::directory_iterator{}; at.increment(code))
      if (wanted(at->path())) all.push_back(at->path());
    if (code)
      throw BadFile{folder.string() + ": cannot be read as a folder: " + code.message() + ".",
                    "a folder that has a folder of pictures for each class."};
    std::ranges::sort(all, {}, [](auto const& path) { return path.native(); });
    return all;
  }
  static Found find(std::filesystem::path const& folder) {
    auto const is_class = [](auto const& path) {
      auto code = std::error_code{};
      return !path.filename().native().starts_with('.') && std::filesystem::is_directory(path, code);
    };
    auto found = Found{};
    for (auto const& path : in(folder, is_class)) {
      auto const label = static_cast<int>(found.classes.size());
      auto const files = in(path, is_picture);
      if (files.empty()) throw BadFile{path.string() + ": has no .png, .jpg or .jpeg.", "pictures of that class in it."};
      for (auto const& file : files) found.files.push_back({file, label});
      found.classes.push_back(path.filename().string());
    }
    if (found.classes.empty())
      throw BadFile{folder.string() + ": has no folders.", "a folder that has a folder of pictures for each class."};
    return found;
  }

  std::shared_ptr<Found const> found_;
  ImageFolderOptions options_;
};

/// Pictures in a folder for each class: rows of (height, width, channels) bytes, labels from 0 on in the order of the
/// names of the folders.
///
///   pictures/cat/1.png  pictures/cat/2.jpg  pictures/dog/a.png
///
///   auto const train = data::image_folder("pictures", {.shape = {32, 32, 3}}).cache();
///
/// order   classes, and files in a class, by the bytes of their names: put .shuffle(n) behind it
/// cost    a pass decodes every file; .cache() keeps the pixels, .map with threads takes the rest
/// throws  BadFile when the folder cannot be read, or a class has no .png, .jpg or .jpeg
/// source  torchvision.datasets.ImageFolder, tf.keras.utils.image_dataset_from_directory(interpolation = "bilinear")
inline ImageFolder image_folder(std::filesystem::path const& folder, ImageFolderOptions options = {}) {
  return {folder, options};
}

}  // namespace chorale::data
