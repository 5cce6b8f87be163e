// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"
#include "test/data/folder.hpp"

#include <chorale/core/random.hpp>
#include <chorale/data/formats/tfrecord.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace tfrecord_test {

using namespace chorale;
using Catch::Matchers::Contains;
using data::Compression;
using sources::Content;
using sources::Folder;

namespace {

std::string text_of(ConstBytes bytes) { return {reinterpret_cast<char const*>(bytes.data()), bytes.size()}; }
ConstBytes bytes_of(std::string const& text) { return std::as_bytes(Span<char const>{text}); }

std::vector<std::string> records(std::string const& file, data::TfRecordOptions options = {}) {
  auto reader = data::TfRecordReader{file, std::move(options)};
  auto all    = std::vector<std::string>{};
  for (auto record = ConstBytes{}; reader.next(record);) all.push_back(text_of(record));
  return all;
}

/// The message of the error that reading a file ends with.
std::string complaint(std::string const& file, data::TfRecordOptions const& options = {}) {
  try {
    records(file, options);
  } catch (BadFile const& error) { return error.what(); }
  return "no complaint";
}

std::vector<std::string> golden_records() {
  auto counted = std::string{};
  for (int i = 0; i < 24; ++i) counted += static_cast<char>(i);
  return {"", "chorale", counted};
}

/// Files of records "<file>:<record>", of lengths that differ.
std::vector<std::filesystem::path> some_files(Folder const& in, std::vector<int> const& counts) {
  auto files = std::vector<std::filesystem::path>{};
  for (std::size_t f = 0; f < counts.size(); ++f) {
    files.push_back(in.path() / (std::to_string(f) + ".tfrecord"));
    auto to = data::TfRecordWriter{files.back()};
    for (int r = 0; r < counts[f]; ++r) to.write(bytes_of(std::to_string(f) + ":" + std::to_string(r)));
    to.close();
  }
  return files;
}

std::vector<std::string> pass(auto const& dataset, std::size_t epoch = 0) {
  auto stream = dataset.stream(epoch);
  auto all    = std::vector<std::string>{};
  for (Sample<std::byte, std::uint64_t> row; stream.next(row);) {
    all.push_back(text_of(row.x));
    CHECK(all.back() == std::to_string(row.y[0]) + ":" + std::to_string(row.y[1]));
  }
  return all;
}

}  // namespace

TEST_CASE("TFRecord files of others are read, plain and packed", "[data][tfrecord][golden]") {
  auto const in    = Folder{};
  auto const plain = in.plain("plain", sources::hex(golden::tfrecord));
  CHECK(records(plain) == golden_records());
  CHECK(records(in.plain("gzip", sources::hex(golden::tfrecord_gzip)), {.compression = Compression::gzip}) ==
        golden_records());
  CHECK(records(in.plain("zlib", sources::hex(golden::tfrecord_zlib)), {.compression = Compression::zlib}) ==
        golden_records());
  CHECK(records(plain, {.compression = Compression::detect}) == golden_records());
  CHECK(records(in.plain("empty", {})).empty());
}

TEST_CASE("TFRecord files are written as others write them; packed ones are read back", "[data][tfrecord][golden]") {
  auto const in = Folder{};
  for (auto const compression : {Compression::none, Compression::gzip, Compression::zlib}) {
    auto const file = (in.path() / "written").string();
    auto to         = data::TfRecordWriter{file, compression};
    for (auto const& record : golden_records()) to.write(bytes_of(record));
    CHECK(to.records() == 3);
    to.close();
    if (compression == Compression::none) CHECK(Folder::bytes_of(file) == sources::hex(golden::tfrecord));
    CHECK(records(file, {.compression = compression}) == golden_records());
    CHECK_THROWS_AS(to.write({}), BadArgument);
  }
  CHECK_THROWS_WITH(data::TfRecordWriter{in.path() / "absent" / "file"},
                    Contains("absent/file: cannot be made after 0 records: No such file"));
}

TEST_CASE("records longer than every buffer come back, packed or not", "[data][tfrecord]") {
  auto const in = Folder{};
  auto big      = std::string(3'000'001, ' ');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(Random{1, 1}.words(i)[0]);
  auto const all = std::vector<std::string>{"small", big, "", big.substr(7), "end"};
  for (auto const compression : {Compression::none, Compression::gzip, Compression::zlib}) {
    auto const file = (in.path() / "big").string();
    auto to         = data::TfRecordWriter{file, compression};
    for (auto const& record : all) to.write(bytes_of(record));
    to.close();
    CHECK(records(file, {.compression = compression}) == all);
  }
}

TEST_CASE("gzip members one after another are one file", "[data][tfrecord]") {
  auto const in = Folder{};
  auto twice    = sources::hex(golden::tfrecord_gzip);
  auto const n  = static_cast<std::ptrdiff_t>(twice.size());
  twice.resize(2 * twice.size());
  std::copy_n(twice.begin(), n, twice.begin() + n);
  CHECK(records(in.plain("twice", twice), {.compression = Compression::gzip}).size() == 6);
  auto zlib = sources::hex(golden::tfrecord_zlib);
  zlib.push_back(0);
  CHECK_THAT(complaint(in.plain("more", zlib), {.compression = Compression::zlib}), Contains("but the file goes on"));
}

TEST_CASE("damage is named with file, record and byte", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const whole = sources::hex(golden::tfrecord);  // records begin at 0, 16, 39; the file ends at 79
  auto const with  = [&](std::size_t at, std::uint8_t change) {
    auto bytes = whole;
    bytes[at] ^= change;
    return in.plain("damaged", bytes);
  };
  auto const cut = [&](std::size_t n) {
    auto bytes = whole;
    bytes.resize(n);
    return in.plain("cut", bytes);
  };
  REQUIRE(whole.size() == 79);
  CHECK_THAT(complaint(with(16, 1)), Contains("damaged: record 1, byte 24: the checksum of the length is "));
  CHECK_THAT(complaint(with(26, 1)), Contains("damaged: record 1, byte 24: the checksum of the length is "));
  CHECK_THAT(complaint(with(28, 1)), Contains("record 1, byte 28: the checksum of 7 bytes of data is ") &&
                                         Contains("TfRecordOptions::skipped"));
  CHECK_THAT(complaint(with(78, 0x80)), Contains("record 2, byte 51: the checksum of 24 bytes of data is "));
  CHECK_THAT(complaint(cut(20)), Contains("cut: record 1, byte 16: 12 bytes are needed (length and its checksum), but "
                                          "the file ends after 4"));
  CHECK_THAT(complaint(cut(60)), Contains("record 2, byte 51: 24 bytes are needed (data), but the file ends after 9"));
  CHECK_THAT(complaint(cut(77)), Contains("record 2, byte 75: 4 bytes are needed (checksum of the data), but the file "
                                          "ends after 2"));
  CHECK_THAT(complaint(in.path().string()), Contains("is a folder"));
  CHECK_THAT(complaint((in.path() / "absent").string()), Contains("absent: cannot be opened: No such file"));
}

TEST_CASE("every cut and every changed byte of a file is seen", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const whole = sources::hex(golden::tfrecord);
  for (std::size_t n = 1; n < whole.size(); ++n) {
    auto const at_record = n == 16 || n == 39;
    auto bytes           = whole;
    bytes.resize(n);
    CHECK((complaint(in.plain("cut", bytes)) == "no complaint") == at_record);
  }
  for (std::size_t n = 0; n < whole.size(); ++n) {
    auto bytes = whole;
    bytes[n] ^= 0x10;
    CHECK(complaint(in.plain("changed", bytes)) != "no complaint");
  }
}

TEST_CASE("a packed file that is opened as a plain one says how to open it", "[data][tfrecord]") {
  auto const in = Folder{};
  CHECK_THAT(complaint(in.plain("g", sources::hex(golden::tfrecord_gzip))), Contains("Compression::gzip"));
  CHECK_THAT(complaint(in.plain("z", sources::hex(golden::tfrecord_zlib))), Contains("Compression::zlib"));
  CHECK_THAT(complaint(in.plain("p", sources::hex(golden::tfrecord)), {.compression = Compression::gzip}),
             Contains("p: record 0, byte 0: the gzip is damaged"));
}

TEST_CASE("a length that a file only claims takes no memory, and one above the cap is refused", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const claim = [&](std::uint64_t length) {
    auto bytes = Content(12);
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(length >> 8 * i);
    auto const crc = data::detail::masked(crc32c(sources::bytes_of(bytes).first(8)));
    for (std::size_t i = 0; i < 4; ++i) bytes[8 + i] = static_cast<std::uint8_t>(crc >> 8 * i);
    return in.plain("claims", bytes);
  };
  auto const skipped = std::make_shared<data::Skipped>();
  CHECK_THAT(complaint(claim(1 << 30)), Contains("1073741824 bytes are needed (data), but the file ends after 0"));
  CHECK_THAT(complaint(claim((1 << 30) + 1)),
             Contains("a record of 1073741825 bytes, but at most 1073741824 are read"));
  CHECK_THAT(complaint(claim(~std::uint64_t{0}), {.skipped = skipped}), Contains("18446744073709551615"));
  CHECK_THAT(complaint(in.plain("p", sources::hex(golden::tfrecord)), {.max_record = 23}),
             Contains("record 2, byte 39: a record of 24 bytes") && Contains("max_record = 24"));
  CHECK(skipped->rests() == 0);  // a cap is a mistake of the caller's
}

TEST_CASE("damaged records are left out and counted when that is asked for", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const whole = sources::hex(golden::tfrecord);
  auto const read  = [&](std::size_t changed, data::Compression how = Compression::none, char const* from = nullptr) {
    auto bytes = from != nullptr ? sources::hex(from) : whole;
    bytes.at(changed) ^= 1;
    auto skipped    = std::make_shared<data::Skipped>();
    auto const left = records(in.plain("file", bytes), {.compression = how, .skipped = skipped}).size();
    return std::vector<std::size_t>{left, skipped->records(), skipped->rests()};
  };
  CHECK(read(28) == std::vector<std::size_t>{2, 1, 0});  // data of record 1: record 2 is still there
  CHECK(read(16) == std::vector<std::size_t>{1, 0, 1});  // its length: nobody knows where 2 begins
  CHECK(read(0) == std::vector<std::size_t>{0, 0, 1});
  CHECK(read(0, Compression::gzip, golden::tfrecord_gzip) == std::vector<std::size_t>{0, 0, 1});

  auto bytes = whole;
  bytes[28] ^= 1, bytes.back() ^= 1;
  auto const skipped = std::make_shared<data::Skipped>();
  CHECK(records(in.plain("file", bytes), {.skipped = skipped}).size() == 1);
  CHECK(skipped->records() == 2);
  CHECK_THAT(skipped->first(), Contains("file: record 1, byte 28"));
}

TEST_CASE("reading can go on behind a record whose data is damaged, and nowhere else", "[data][tfrecord]") {
  auto const in = Folder{};
  auto bytes    = sources::hex(golden::tfrecord);
  bytes[28] ^= 1;
  auto reader = data::TfRecordReader{in.plain("file", bytes)};
  auto record = ConstBytes{};
  REQUIRE(reader.next(record));
  CHECK_THROWS_AS(reader.next(record), BadFile);
  REQUIRE(reader.next(record));
  CHECK(record.size() == 24);
  CHECK(reader.record() == 2);

  bytes[39] ^= 1;
  auto other = data::TfRecordReader{in.plain("file", bytes)};
  REQUIRE(other.next(record));
  CHECK_THROWS_AS(other.next(record), BadFile);
  CHECK_THROWS_AS(other.next(record), BadFile);
  CHECK_FALSE(other.next(record));
}

TEST_CASE("several files are read in turns, in an order that threads do not change", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const files = some_files(in, {5, 2, 0, 4});
  CHECK(pass(data::tfrecords(files)) ==
        std::vector<std::string>{"0:0", "0:1", "0:2", "0:3", "0:4", "1:0", "1:1", "3:0", "3:1", "3:2", "3:3"});
  auto const turns = data::tfrecords(files, {}, {.cycle = 2, .block = 2}, 1);
  auto const order =
      std::vector<std::string>{"0:0", "0:1", "1:0", "1:1", "0:2", "0:3", "0:4", "3:0", "3:1", "3:2", "3:3"};
  for (int i = 0; i < 5; ++i) CHECK(pass(turns) == order);
  CHECK(pass(turns.repeat(2)).size() == 22);
  CHECK_FALSE(turns.size().has_value());
  CHECK(pass(data::tfrecords({})).empty());
}

TEST_CASE("files can be shuffled, by seed and epoch", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const files = some_files(in, std::vector<int>(12, 1));
  auto const all   = data::tfrecords(files, {}, {.shuffle = Seed{3}});
  CHECK(pass(all, 0) == pass(all, 0));
  CHECK(pass(all, 0) != pass(all, 1));
  auto sorted = pass(all, 1), plain = pass(data::tfrecords(files));
  std::sort(sorted.begin(), sorted.end()), std::sort(plain.begin(), plain.end());
  CHECK(sorted == plain);
}

TEST_CASE("in any order, every record of every file comes once", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const files = some_files(in, {500, 2, 0, 400, 300});
  auto expected    = pass(data::tfrecords(files));
  std::sort(expected.begin(), expected.end());
  for (std::size_t const threads : {1U, 2U, 4U, 9U}) {
    auto all = pass(data::tfrecords_in_any_order(files, {}, threads, 3));
    std::sort(all.begin(), all.end());
    CHECK(all == expected);
  }
  CHECK(pass(data::tfrecords_in_any_order({}, {}, 2)).empty());
}

TEST_CASE("an error in one of several files comes out of next, in any order too", "[data][tfrecord]") {
  auto const in = Folder{};
  auto files    = some_files(in, {50, 50});
  files.push_back(in.plain("2.tfrecord", sources::hex("00")));
  CHECK_THROWS_WITH(pass(data::tfrecords(files, {}, {.cycle = 3})), Contains("2.tfrecord: record 0, byte 0: 12 bytes"));
  CHECK_THROWS_WITH(pass(data::tfrecords_in_any_order(files, {}, 3)), Contains("2.tfrecord: record 0, byte 0"));
  CHECK_THROWS_WITH(pass(data::tfrecords_in_any_order({in.path() / "absent"}, {}, 3)), Contains("cannot be opened"));
  auto const skipped = std::make_shared<data::Skipped>();
  CHECK(pass(data::tfrecords(files, {.skipped = skipped}, {.cycle = 3})).size() == 100);
  CHECK(skipped->rests() == 1);
}

TEST_CASE("a stream of several files can be left at any point, and takes its threads along", "[data][tfrecord]") {
  auto const in    = Folder{};
  auto const files = some_files(in, {300, 300, 300});
  for (int read = 0; read < 8; ++read) {
    auto fixed = data::tfrecords(files, {}, {.cycle = 2}, 2).stream(0);
    auto any   = data::tfrecords_in_any_order(files, {}, 2, 2).stream(0);
    auto row   = Sample<std::byte, std::uint64_t>{};
    for (int i = 0; i < read; ++i) REQUIRE((fixed.next(row) && any.next(row)));
  }
}

}  // namespace tfrecord_test
