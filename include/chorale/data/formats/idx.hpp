// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/formats/byte_source.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace chorale::data {
namespace detail {

/// Opens a file that may be gzipped; a file named .gz must be.
inline ByteSource open_plain_or_gzip(std::filesystem::path const& path) {
  auto file = ByteSource{path};
  if (path.extension() == ".gz" && !file.looks_like_gzip())
    file.fail("no gzip, which begins with the bytes 1f 8b", "its name without .gz if it is plain, or fetch it again");
  return file;
}

/// The content of an IDX file of bytes.
struct Idx {
  std::vector<std::size_t> sizes;   // of each dimension; the first counts rows
  std::vector<std::uint8_t> bytes;  // row-major
};

/// Reads the sizes in the header of an IDX file of bytes with `dimensions` dimensions.
inline std::vector<std::size_t> read_idx_header(ByteSource& file, std::uint8_t dimensions) {
  auto header       = std::array<std::uint8_t, 4 + 4 * 255>{};
  auto const need   = 4 + std::size_t{4} * dimensions;
  auto const got    = file.read(std::as_writable_bytes(Span<std::uint8_t>{header}.first(need)));
  auto const advice = dimensions == 1 ? "a labels file, *-labels-idx1-ubyte" : "an images file, *-images-idx3-ubyte";
  auto const hex    = [](std::size_t v) {
    constexpr auto digits = "0123456789abcdef";
    return std::string{"0x"} + digits[v / 16] + digits[v % 16];
  };
  if (got < 4)
    file.fail("the header of an IDX file has " + std::to_string(need) + " bytes, but the file ends here", advice);
  if (header[0] != 0 || header[1] != 0)
    file.fail(0, "an IDX file begins with 0x00 0x00, this one with " + hex(header[0]) + " " + hex(header[1]), advice);
  if (header[2] != 0x08)
    file.fail(2, "the elements have type " + hex(header[2]) + ", but only bytes (0x08) are read", advice);
  if (header[3] != dimensions)
    file.fail(3, std::to_string(header[3]) + " dimensions, but " + std::to_string(dimensions) + " are needed", advice);
  if (got < need)
    file.fail("the header has " + std::to_string(need) + " bytes, but the file ends here", ByteSource::again);

  auto sizes = std::vector<std::size_t>{};
  for (std::size_t at = 4; at < need; at += 4) {
    auto size = std::size_t{0};
    for (std::size_t k = 0; k < 4; ++k) size = size << 8 | header[at + k];  // big-endian
    if (size == 0) file.fail(at, "dimension " + std::to_string(sizes.size() + 1) + " has size 0", advice);
    sizes.push_back(size);
  }
  return sizes;
}

/// Reads an IDX file of bytes with `dimensions` dimensions.
///
/// cost    memory in proportion to the bytes of the file, whatever the header promises; of a packed file no more is
///         unpacked than the header promises, and nothing if the file is too small to hold that
/// throws  BadFile when anything is missing, left over, or not as the format requires
/// source  "The MNIST database of handwritten digits": 00 00 type dimensions, sizes as big-endian u32, data
inline Idx read_idx(std::filesystem::path const& path, std::uint8_t dimensions) {
  auto file  = open_plain_or_gzip(path);
  auto idx   = Idx{.sizes = read_idx_header(file, dimensions), .bytes = {}};
  auto total = std::size_t{1};
  auto text  = std::string{};
  for (auto const size : idx.sizes) {
    text.append(text.empty() ? "" : " x ") += std::to_string(size);
    if (total > std::numeric_limits<std::size_t>::max() / 2 / size)
      file.fail(4, "the sizes " + text + " are more than 2^63 bytes", ByteSource::again);
    total *= size;
  }
  text.append(" = ") += std::to_string(total);

  auto const promise = "the header promises " + text + " bytes of data";
  file.expect_room_for(total, promise);
  if (auto const got = file.append(idx.bytes, total); got < total)  // grows with the bytes read
    file.fail(promise + ", but the file ends after " + std::to_string(got), ByteSource::again);
  auto const end = file.offset();
  auto beyond    = std::array<std::uint8_t, 1>{};
  if (file.read(std::as_writable_bytes(Span<std::uint8_t>{beyond})) != 0)
    file.fail(end, "the data of " + text + " bytes ends here, but the file goes on", ByteSource::again);
  return idx;
}

}  // namespace detail

/// How labels are read.
struct IdxOptions {
  int classes = 10;  // labels are below this number
};

/// Images and labels from two IDX files, plain or gzipped, read at once: rows of (height, width, 1) bytes.
///
/// throws  BadFile when a file is missing, damaged or of another kind; when the counts differ; when a label is not
///         below `classes`
inline Tensors<std::uint8_t, std::uint8_t> idx(std::filesystem::path const& images_file,
                                               std::filesystem::path const& labels_file, IdxOptions options = {}) {
  CHORALE_EXPECTS(options.classes >= 1 && options.classes <= 256,
                  "labels are bytes: " + std::to_string(options.classes) + " classes cannot be told apart");
  auto images = detail::read_idx(images_file, 3);
  auto labels = detail::read_idx(labels_file, 1);
  if (images.sizes[0] != labels.sizes[0])
    throw BadFile{images_file.string() + ": byte 4: " + std::to_string(images.sizes[0]) + " images, but " +
                      labels_file.string() + " has " + std::to_string(labels.sizes[0]) + " labels.",
                  "the two files of one split."};
  auto const wrong = std::find_if(labels.bytes.begin(), labels.bytes.end(),
                                  [&](std::uint8_t label) { return label >= options.classes; });
  if (wrong != labels.bytes.end())
    throw BadFile{labels_file.string() + ": byte " + std::to_string(8 + (wrong - labels.bytes.begin())) + ": label " +
                      std::to_string(*wrong) + ", but there are " + std::to_string(options.classes) + " classes.",
                  "IdxOptions{.classes = " + std::to_string(*wrong + 1) + "} or more, or fetch it again."};
  return from_tensors(std::move(images.bytes), std::move(labels.bytes), images.sizes[1] * images.sizes[2]);
}

/// The parts of a dataset: rows for training, and rows for evaluation.
enum Split { train, test };

/// MNIST, or a dataset with its file names such as Fashion-MNIST: rows of (28, 28, 1) bytes, labels 0 to 9.
///
/// folder  has train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-…, t10k-labels-…, with or without .gz
/// throws  BadFile as idx does
inline Tensors<std::uint8_t, std::uint8_t> mnist(std::filesystem::path const& folder, Split split) {
  auto const find = [&](std::string const& name) {
    auto code = std::error_code{};
    for (auto const& file : {folder / name, folder / (name + ".gz")})
      if (std::filesystem::exists(file, code)) return file;
    auto const what = std::filesystem::is_directory(folder, code) ? "has neither " + name + " nor " + name + ".gz"
                                                                  : "is not a folder";
    throw BadFile{folder.string() + ": " + what + ".",
                  "the folder with MNIST's four files, which "
                  "https://ossci-datasets.s3.amazonaws.com/mnist/ has as train-images-idx3-ubyte.gz and so on, or "
                  "data::digits, which draws digits."};
  };
  auto const prefix = std::string{split == train ? "train" : "t10k"};
  auto const images = find(prefix + "-images-idx3-ubyte");
  return idx(images, find(prefix + "-labels-idx1-ubyte"));
}

}  // namespace chorale::data
