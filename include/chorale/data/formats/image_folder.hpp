// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/image.hpp>
#include <chorale/data/formats/image_file.hpp>
#include <chorale/data/formats/skip_broken.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chorale::data {

/// Whether a file that is not a picture, or is damaged, ends the pass or is left out and counted.
enum class OnUnreadable { stop, skip };

/// How the pictures of an image_folder become rows.
struct ImageFolderOptions {
  ImageShape shape{32, 32, 3};                        // of all rows; pictures of another size are scaled to it
  std::size_t max_pixels     = std::size_t{1} << 26;  // of a file; see ImageOptions
  OnUnreadable on_unreadable = OnUnreadable::stop;
};

/// Pictures in a folder for each class, read as a pass comes to them: see data::image_folder().
class ImageFolder : public Pipe<ImageFolder> {
  struct File {
    std::filesystem::path path;
    int label;
  };
  struct Found {
    std::filesystem::path folder{};
    std::vector<std::string> classes{};
    std::vector<File> files{};
    Skipped skipped{};  // each file once
    std::mutex mutex{};
    std::set<std::size_t> left_out{};  // files, under the mutex

    void leave_out(std::size_t file, BadFile const& why) {
      auto const lock = std::lock_guard{mutex};
      if (left_out.insert(file).second) skipped.record(why);
    }
  };

 public:
  using element                = Sample<std::uint8_t, int>;
  static constexpr bool stable = false;

  ImageFolder(std::filesystem::path const& folder, ImageFolderOptions options)
      : found_{std::make_shared<Found>()}, options_{options} {
    auto const channels = options.shape.channels;
    CHORALE_EXPECTS(channels == 1 || channels == 3,
                    "image_folder reads 1 or 3 channels, but " + std::to_string(channels) + " are asked for");
    CHORALE_EXPECTS(options.shape.size() > 0, "image_folder: a shape without pixels");
    find(folder, *found_);
  }

  /// Names of the classes in the order of their labels.
  std::vector<std::string> const& classes() const& { return found_->classes; }
  std::vector<std::string> classes() && { return found_->classes; }

  /// The files that all passes so far have left out: skipped().records() is their number, skipped().first() a reason.
  Skipped const& skipped() const& { return found_->skipped; }
  Skipped const& skipped() const&& = delete;

  class Stream {
   public:
    Stream(std::shared_ptr<Found> found, ImageFolderOptions options) : found_{std::move(found)}, options_{options} {}

    /// throws  BadFile when a file is damaged, or no picture, and such files are not left out
    bool next(element& out) {
      while (at_ < found_->files.size()) {
        try {
          read(found_->files[at_++]);
          out = {image_.pixels, {&label_, 1}};
          return true;
        } catch (BadFile const& why) {
          if (options_.on_unreadable == OnUnreadable::stop) throw;
          found_->leave_out(at_ - 1, why);
        }
      }
      return false;
    }

   private:
    void read(File const& file) {
      auto const shape = options_.shape;
      image_           = read_image(file.path, {.channels = shape.channels, .max_pixels = options_.max_pixels});
      if (image_.shape != shape) {
        resize(image_.view(), shape.height, shape.width, scaled_);
        std::swap(image_.pixels, scaled_);
      }
      label_ = file.label;
    }

    std::shared_ptr<Found> found_;
    ImageFolderOptions options_;
    std::size_t at_ = 0;
    Image image_;
    std::vector<std::uint8_t> scaled_;
    int label_ = 0;
  };

  Stream stream(std::size_t) const { return {found_, options_}; }
  std::optional<std::size_t> size() const {
    if (options_.on_unreadable == OnUnreadable::skip) return {};  // known only after reading
    return found_->files.size();
  }

  void describe(std::vector<std::string>& lines) const {
    auto crc = std::uint32_t{0};
    for (auto const& [path, label] : found_->files) {
      auto const name = path.lexically_relative(found_->folder).generic_string();
      crc = crc32c(std::as_bytes(Span<char const>{name.c_str(), name.size() + 1}), crc);  // with its final 0
    }
    auto const& [height, width, channels] = options_.shape;
    lines.push_back(std::to_string(found_->files.size()) + " pictures of " + std::to_string(found_->classes.size()) +
                    " classes as " + std::to_string(height) + " x " + std::to_string(width) + " x " +
                    std::to_string(channels) + ", names " + std::to_string(crc));
  }

 private:
  /// True for the endings of pictures, also of kinds that are not read: such a file is not left out in silence.
  static bool is_picture(std::filesystem::path const& file) {
    constexpr auto endings =
        std::array<std::string_view, 8>{".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"};
    auto ending = file.extension().string();
    std::ranges::transform(ending, ending.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    return std::ranges::count(endings, ending) > 0;
  }
  static bool is_folder(std::filesystem::path const& path) {
    auto code = std::error_code{};
    return std::filesystem::is_directory(path, code);
  }
  /// What is in a folder and not hidden, sorted by the bytes of names.
  static std::vector<std::filesystem::path> in(std::filesystem::path const& folder) {
    auto code = std::error_code{};
    auto all  = std::vector<std::filesystem::path>{};
    for (auto at = std::filesystem::directory_iterator{folder, code};
         !code && at != std::filesystem::directory_iterator{}; at.increment(code))
      if (!at->path().filename().native().starts_with('.')) all.push_back(at->path());
    if (code)
      throw BadFile{folder.string() + ": cannot be read as a folder: " + code.message() + ".",
                    "a folder that has a folder of pictures for each class."};
    std::ranges::sort(all, {}, [](auto const& path) { return path.native(); });
    return all;
  }
  /// Adds the pictures of a folder, and of the folders in it; a link to a folder around it is not followed.
  static void add(std::filesystem::path const& folder, int label, std::vector<std::filesystem::path>& around,
                  Found& found) {
    auto code = std::error_code{};
    if (std::ranges::any_of(around, [&](auto const& one) { return std::filesystem::equivalent(one, folder, code); }))
      return;
    around.push_back(folder);
    for (auto const& path : in(folder))
      if (is_folder(path)) add(path, label, around, found);
      else if (is_picture(path)) found.files.push_back({path, label});
    around.pop_back();
  }
  static void find(std::filesystem::path const& folder, Found& found) {
    found.folder = folder;
    for (auto const& path : in(folder)) {
      if (!is_folder(path)) continue;
      auto const label  = static_cast<int>(found.classes.size());
      auto const before = found.files.size();
      auto around       = std::vector<std::filesystem::path>{folder};
      add(path, label, around, found);
      if (found.files.size() == before)
        throw BadFile{path.string() + ": has no .png, .jpg or .jpeg.", "pictures of that class in it."};
      found.classes.push_back(path.filename().string());
    }
    if (found.classes.empty())
      throw BadFile{folder.string() + ": has no folders.", "a folder that has a folder of pictures for each class."};
  }

  std::shared_ptr<Found> found_;
  ImageFolderOptions options_;
};

/// Pictures in a folder for each class: rows of (height, width, channels) bytes, labels from 0 on in the order of the
/// names of the folders.
///
///   pictures/cat/1.png  pictures/cat/2.jpg  pictures/dog/a.png
///
///   auto const train = data::image_folder("pictures", {.shape = {32, 32, 3}}).cache();
///
/// keeps   pictures in folders within a class belong to it; hidden files and folders, ._1.jpg, are ignored. A picture
///         of another kind, 1.gif, is one that cannot be read; {.on_unreadable = data::OnUnreadable::skip} leaves such
///         files out, and skipped() of the result counts them
/// order   classes, and files in a class, by the bytes of their names: put .shuffle(n) after it
/// cost    a pass decodes every file; .cache() keeps the pixels, .map with threads takes the rest
/// throws  BadFile when the folder cannot be read, or a class has no .png, .jpg or .jpeg
/// source  torchvision.datasets.ImageFolder, tf.keras.utils.image_dataset_from_directory(interpolation = "bilinear")
inline ImageFolder image_folder(std::filesystem::path const& folder, ImageFolderOptions options = {}) {
  return {folder, options};
}

}  // namespace chorale::data
