// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"
#include "test/data/folder.hpp"

#include <chorale/data/formats/npy.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace npy_test {

using namespace chorale;
using Catch::Matchers::Contains;
using sources::Content;
using sources::Folder;
using Shape = std::vector<std::size_t>;

namespace {

/// A file of this header and some zeros behind it.
Content file_of(std::string const& dict, std::size_t zeros = 0, std::uint8_t version = 1) {
  auto bytes = Content{0x93, 'N', 'U', 'M', 'P', 'Y', version, 0, static_cast<std::uint8_t>(dict.size()), 0};
  if (version > 1) bytes.insert(bytes.end(), {0, 0});
  bytes.insert(bytes.end(), dict.begin(), dict.end());
  bytes.resize(bytes.size() + zeros);
  return bytes;
}

template <class T = float> std::string complaint(Content const& content) {
  auto const in = Folder{};
  try {
    data::read_npy<T>(in.plain("file.npy", content));
  } catch (BadFile const& error) { return error.what(); }
  return "no complaint";
}

std::string header(std::string const& descr, std::string const& shape) {
  return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }\n";
}

}  // namespace

TEST_CASE("arrays that NumPy saved are read", "[data][npy][golden]") {
  auto const in = Folder{};
  auto const f4 = data::read_npy<float>(in.plain("f4", sources::hex(golden::npy_f4)));
  CHECK(f4.shape == Shape{2, 3});
  CHECK(f4.values == std::vector<float>{0, 0.5F, 1, 1.5F, 2, 2.5F});
  auto const i8 = data::read_npy<std::int64_t>(in.gzipped("i8.gz", sources::hex(golden::npy_i8)));
  CHECK(i8.shape == Shape{3});
  CHECK(i8.values == std::vector<std::int64_t>{-1, 0, std::int64_t{1} << 40});
  auto const u1 = data::read_npy<std::uint8_t>(in.plain("u1", sources::hex(golden::npy_u1)));
  CHECK(u1.shape.empty());
  CHECK(u1.values == std::vector<std::uint8_t>{7});
  CHECK(data::read_npy<std::uint8_t>(in.plain("b1", sources::hex(golden::npy_bool))).values ==
        std::vector<std::uint8_t>{1, 0});
}

TEST_CASE("arrays are written byte by byte as NumPy writes them", "[data][npy][golden]") {
  auto const in   = Folder{};
  auto const file = (in.path() / "written.npy").string();
  auto const f4   = std::vector<float>{0, 0.5F, 1, 1.5F, 2, 2.5F};
  data::write_npy(file, {2, 3}, Span<float const>{f4});
  CHECK(Folder::bytes_of(file) == sources::hex(golden::npy_f4));
  auto const seven = std::vector<std::uint8_t>{7};
  data::write_npy(file, {}, Span<std::uint8_t const>{seven});
  CHECK(Folder::bytes_of(file) == sources::hex(golden::npy_u1));
  CHECK_THROWS_AS(data::write_npy(file, {2, 2}, Span<float const>{f4}), BadArgument);
  CHECK_THROWS_AS(data::write_npy(in.path() / "absent" / "f", {2, 3}, Span<float const>{f4}), BadFile);
}

TEST_CASE("every type and shape comes back", "[data][npy]") {
  auto const in    = Folder{};
  auto const check = [&]<class T>(T first) {
    for (auto const& shape : std::vector<Shape>{{}, {1}, {0}, {5}, {2, 0, 3}, {300'000}, {7, 11, 13}, Shape(20, 1)}) {
      auto count = std::size_t{1};
      for (auto const n : shape) count *= n;
      auto values = std::vector<T>(count, first);
      if (count > 1) values.back() = T{1};
      data::write_npy(in.path() / "a", shape, Span<T const>{values});
      auto const back = data::read_npy<T>(in.path() / "a");
      CHECK(back.shape == shape);
      CHECK(back.values == values);
    }
  };
  check(1.25F), check(-1e300);
  check(std::int8_t{-3}), check(std::int16_t{-300}), check(std::int32_t{-70'000}), check(std::int64_t{-1} << 40);
  check(std::uint8_t{200}), check(std::uint16_t{60'000}), check(~std::uint32_t{0}), check(~std::uint64_t{0});
}

TEST_CASE("numbers of other types and column by column are converted, others are refused with a sentence",
          "[data][npy][golden]") {
  auto const in      = Folder{};
  auto const columns = data::read_npy<float>(in.plain("f", sources::hex(golden::npy_fortran)));
  CHECK(columns.shape == Shape{2, 3});
  CHECK(columns.values == std::vector<float>(6));
  CHECK(data::read_npy<double>(in.plain("d", sources::hex(golden::npy_f4))).values ==
        std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5});
  CHECK(data::read_npy<float>(in.plain("h", file_of(header("'<f2'", "(1,)"), 2))).values == std::vector<float>{0});
  CHECK_THAT(complaint<std::int16_t>(sources::hex(golden::npy_f4)),
             Contains("byte 132: number 1 is 0.5, no whole number") && Contains("another type than i2"));
  CHECK_THAT(complaint<std::int32_t>(sources::hex(golden::npy_i8)), Contains("number 2 is 1099511627776, beyond"));
  CHECK_THAT(complaint<std::uint64_t>(sources::hex(golden::npy_i8)), Contains("number 0 is -1, beyond"));
  CHECK_THAT(complaint<std::int16_t>(sources::hex(golden::npy_big)), Contains("big-endian numbers"));
  CHECK_THAT(complaint(file_of(header("'|O'", "(1,)"))), Contains("Python objects, which only Python can read"));
  CHECK_THAT(complaint(file_of(header("[('x', '<f4')]", "(1,)"))), Contains("byte 20: a structured array"));
  for (auto const* type : {"'<c8'", "'<f1'", "'<b4'"})
    CHECK_THAT(complaint(file_of(header(type, "(1,)"))), Contains("byte 20: a type of numbers that is none of"));
}

TEST_CASE("a header is read as Python would read it, or refused at its byte", "[data][npy]") {
  auto const in = Folder{};
  CHECK(data::read_npy<float>(in.plain("a", file_of("{\"shape\":(2 ,2,),'fortran_order' :False,'descr':'<f4'}", 16)))
            .shape == Shape{2, 2});
  CHECK(data::read_npy<float>(in.plain("a", file_of(header("'=f4'", "(1,)"), 4, 3))).shape == Shape{1});
  CHECK_THAT(complaint({}), Contains("byte 0: a npy file begins with"));
  CHECK_THAT(complaint({0x93, 'N', 'U', 'M', 'P', 'Y'}), Contains("byte 6: format version 0"));
  CHECK_THAT(complaint({0x93, 'N', 'U', 'M', 'P', 'Y', 4, 0}), Contains("byte 6: format version 4"));
  CHECK_THAT(complaint({0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 5}), Contains("the header ends here"));
  CHECK_THAT(complaint({0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 5, 0, '{'}),
             Contains("has 5 bytes, but the file ends after 1"));
  CHECK_THAT(complaint({0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0, 0, 0, 0x10}),
             Contains("byte 8: a header of 268435456 bytes"));
  CHECK_THAT(complaint(file_of("[1]")), Contains("byte 10: '{' is missing"));
  CHECK_THAT(complaint(file_of("{'descr': '<f4', 'shape': (1,)}")), Contains("each once"));
  CHECK_THAT(complaint(file_of("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}")),
             Contains("each once"));
  CHECK_THAT(complaint(file_of("{'descr': '<f4', 'extra': 1}")), Contains("byte 27: a key that is none of"));
  CHECK_THAT(complaint(file_of("{'descr': '<f4' 'shape'")), Contains("',' or '}' is missing"));
  CHECK_THAT(complaint(file_of("{'descr': '<f4")), Contains("a text that does not end"));
  CHECK_THAT(complaint(file_of(header("'<f4'", "(3)"))), Contains("',' or ')' is missing"));
  CHECK_THAT(complaint(file_of(header("'<f4'", "(-3,)"))), Contains("a number is missing"));
  CHECK_THAT(complaint(file_of(header("'<f4'", "(18446744073709551616,)"))), Contains("a dimension above 2^64"));
  CHECK_THAT(complaint(file_of(header("'<f4'", "(1,)") + "x", 4)), Contains("goes on after its dict"));
}

TEST_CASE("shape and data that do not agree are refused with both numbers, and take no memory", "[data][npy]") {
  CHECK_THAT(complaint(file_of(header("'<f4'", "(2, 3)"), 23)),
             Contains("the shape 2 x 3 promises 24 bytes, but the file ends after 23"));
  CHECK_THAT(complaint(file_of(header("'<f4'", "(2, 3)"), 25)),
             Contains("the data of 24 bytes ends here, but the file goes on"));
  CHECK_THAT(complaint(file_of(header("'<f4'", "(4294967296, 1048576)"), 24)), Contains("ends after 24"));
  CHECK_THAT(complaint(file_of(header("'<f4'", "(4294967296, 4294967296)"), 24)), Contains("more than 2^63 bytes"));
}

TEST_CASE("two npy files are rows and their targets", "[data][npy]") {
  auto const in = Folder{};
  auto const x  = std::vector<float>{1, 2, 3, 4, 5, 6};
  auto const y  = std::vector<std::int32_t>{7, 8, 9};
  data::write_npy(in.path() / "x", {3, 2, 1}, Span<float const>{x});
  data::write_npy(in.path() / "y", {3}, Span<std::int32_t const>{y});
  auto const rows = data::npy<float, std::int32_t>(in.path() / "x", in.path() / "y");
  auto stream     = rows.batch(3).stream(0);
  auto batch      = Batch{};
  REQUIRE(stream.next(batch));
  CHECK((batch.rows == 3 && batch.x[4] == 5 && batch.y[2] == 9));
  data::write_npy(in.path() / "y", {1, 3}, Span<std::int32_t const>{y});
  CHECK_THROWS_WITH((data::npy<float, std::int32_t>(in.path() / "x", in.path() / "y")),
                    Contains("x: 3 rows, but ") && Contains("y has 1"));
}

TEST_CASE("a gzip too small for what its shape promises is refused before it is unpacked", "[data][npy]") {
  auto const in   = Folder{};
  auto const file = in.gzipped("bomb.gz", file_of(header("'<f4'", "(400000, 1000000)"), 4U << 20));
  CHECK_THROWS_WITH(data::read_npy<float>(file),
                    Contains("the shape 400000 x 1000000 promises 1600000000000 bytes, but a file of ") &&
                        Contains("packed bytes holds at most"));
}

}  // namespace npy_test
