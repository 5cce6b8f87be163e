// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/formats/idx.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace chorale::data {

/// The two kinds of labels of CIFAR-100.
enum class CifarLabels { coarse, fine };  // of 20 classes, of 100

namespace detail {

inline constexpr std::size_t cifar_side = 32, cifar_plane = cifar_side * cifar_side, cifar_pixels = 3 * cifar_plane;

/// The label bytes that precede the pixels of an image in a file of CIFAR.
struct CifarFormat {
  std::array<int, 2> classes{10, 0};  // of each label byte; 0: there is none
  std::size_t wanted = 0;             // index of the label that is used
};

/// Appends the images of a file: red, green and blue planes in the file, (32, 32, 3) in `to`.
inline void read_cifar(std::filesystem::path const& path, CifarFormat const& format,
                       RowVectors<std::uint8_t, std::uint8_t>& to) {
  auto file         = open_plain_or_gzip(path);
  auto const labels = format.classes[1] > 0 ? std::size_t{2} : std::size_t{1};
  auto record       = std::array<std::uint8_t, 2 + cifar_pixels>{};
  auto const whole  = Span<std::uint8_t>{record}.first(labels + cifar_pixels);
  for (std::uint64_t image = 0;; ++image) {
    file.part("image", image);
    auto const begin = file.offset();
    auto const got   = file.read(std::as_writable_bytes(whole));
    if (got == 0 && image > 0) return;
    if (got < whole.size())
      file.fail(
          begin,
          "an image has " + std::to_string(whole.size()) + " bytes, but the file ends after " + std::to_string(got),
          "a .bin file of CIFAR's binary version");
    for (std::size_t i = 0; i < labels; ++i)
      if (record[i] >= format.classes[i])
        file.fail(
            begin + i,
            "label " + std::to_string(record[i]) + ", but there are " + std::to_string(format.classes[i]) + " classes",
            "the other CIFAR, or fetch it again");
    to.y.push_back(record[format.wanted]);
    auto const at     = to.x.size();
    auto const planes = whole.subspan(labels);  // (3, 32, 32)
    to.x.resize(at + cifar_pixels);
    for (std::size_t colour = 0; colour < 3; ++colour)
      for (std::size_t i = 0; i < cifar_plane; ++i) to.x[at + 3 * i + colour] = planes[colour * cifar_plane + i];
  }
}

inline Tensors<std::uint8_t, std::uint8_t> cifar(std::filesystem::path const& folder,
                                                 std::vector<std::string> const& names, CifarFormat const& format) {
  auto rows = RowVectors<std::uint8_t, std::uint8_t>{};
  for (auto const& name : names) {
    auto code         = std::error_code{};
    auto const packed = folder / (name + ".gz");
    read_cifar(std::filesystem::exists(packed, code) ? packed : folder / name, format, rows);
  }
  return from_tensors(std::move(rows.x), std::move(rows.y), cifar_pixels);
}

}  // namespace detail

/// CIFAR-10: rows of (32, 32, 3) bytes, labels 0 to 9.
///
/// folder  has data_batch_1.bin to data_batch_5.bin and test_batch.bin, with or without .gz
/// keeps   red, green and blue of a pixel are adjacent, as Conv2D expects; in the files they are not
/// throws  BadFile with file, image and byte
/// source  cs.toronto.edu/~kriz/cifar.html, binary version
inline Tensors<std::uint8_t, std::uint8_t> cifar10(std::filesystem::path const& folder, Split split) {
  if (split == test) return detail::cifar(folder, {"test_batch.bin"}, {});
  return detail::cifar(
      folder, {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}, {});
}

/// CIFAR-100: rows of (32, 32, 3) bytes, labels 0 to 99, or 0 to 19 for CifarLabels::coarse.
///
/// folder  has train.bin and test.bin, with or without .gz
/// throws  BadFile with file, image and byte
inline Tensors<std::uint8_t, std::uint8_t> cifar100(std::filesystem::path const& folder, Split split,
                                                    CifarLabels labels = CifarLabels::fine) {
  return detail::cifar(folder, {split == test ? "test.bin" : "train.bin"},
                       {.classes = {20, 100}, .wanted = labels == CifarLabels::fine ? std::size_t{1} : std::size_t{0}});
}

}  // namespace chorale::data
