// SPDX-License-Identifier: Apache-2.0
//
// Writes and reads TFRecord files for tfrecord_test.py, which compares them with TensorFlow's.
//
//   tfrecord_files write FOLDER         200 records, as none, gzip and zlib; 50 Examples, as examples
//   tfrecord_files copy FROM PACKED TO  the records of a file that is packed by none, gzip or zlib, to a plain file
//   tfrecord_files parse FROM TO        the Examples of a plain file, taken apart and put together again
#include <chorale/core/error.hpp>
#include <chorale/data/formats/tf_example.hpp>
#include <chorale/data/formats/tfrecord.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

using namespace chorale;
using data::Compression;

namespace {

std::map<std::string, Compression> const packings = {
    {"none", Compression::none}, {"gzip", Compression::gzip}, {"zlib", Compression::zlib}};

/// As in tfrecord_test.py.
std::vector<std::byte> record(std::size_t i) {
  auto bytes = std::vector<std::byte>(i * 37 % 1'000);
  for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<std::byte>((i * 7 + k * k) % 256);
  return bytes;
}

data::Example example(int i) {
  auto all              = data::Example{};
  all.features["name"]  = std::vector<std::string>{"row " + std::to_string(i), ""};
  all.features["x"]     = std::vector<float>{static_cast<float>(i) / 4, -1.5F, 3e38F};
  all.features["label"] = std::vector<std::int64_t>{i, -1 - i, INT64_MIN, INT64_MAX};
  all.features["none"]  = std::vector<float>{};
  return all;
}

void write(std::string const& folder) {
  for (auto const& [name, packing] : packings) {
    auto to = data::TfRecordWriter{folder + "/" + name, packing};
    for (std::size_t i = 0; i < 200; ++i) to.write(record(i));
    to.close();
  }
  auto to = data::TfRecordWriter{folder + "/examples"};
  for (int i = 0; i < 50; ++i) to.write(example(i).bytes());
  to.close();
}

template <class Change> void copy(std::string const& from, Compression packed, std::string const& to, Change change) {
  auto reader = data::TfRecordReader{from, {.compression = packed}};
  auto writer = data::TfRecordWriter{to};
  for (auto bytes = ConstBytes{}; reader.next(bytes);) writer.write(change(bytes));
  writer.close();
}

}  // namespace

int main(int argc, char** argv) try {
  auto const arguments = std::vector<std::string>(argv + 1, argv + argc);
  auto const is        = [&](char const* what, std::size_t n) { return arguments.size() == n && arguments[0] == what; };
  if (is("write", 2)) write(arguments[1]);
  else if (is("copy", 4)) copy(arguments[1], packings.at(arguments[2]), arguments[3], [](auto bytes) { return bytes; });
  else if (is("parse", 3))
    copy(arguments[1], Compression::none, arguments[2], [](auto bytes) { return data::Example::parse(bytes).bytes(); });
  else return std::fprintf(stderr, "tfrecord_files write FOLDER | copy FROM PACKED TO | parse FROM TO\n"), 2;
  return 0;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
