// SPDX-License-Identifier: Apache-2.0
#include "test/support/folder.hpp"
#include "test/support/full_disk.hpp"
#include "test/support/processes.hpp"

#include <chorale/checkpoint/safetensors.hpp>

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace safetensors_test {

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

/// A folder of the test's, and the file in it.
struct Folder : chorale::test::Folder {
  std::filesystem::path file() const { return path / "x.safetensors"; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{path}, {}));
  }
};

/// Has its file system files without names? If not, a line says that the test was skipped.
bool unnamed_or_skip(Folder const& folder, std::string const& test) {
  auto const file = ::open(folder.path.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) return ::close(file) == 0;
  std::printf("SKIPPED: %s: the file system of %s has no files without names\n", test.c_str(), folder.path.c_str());
  return false;
}

std::string length(std::uint64_t n) { return {reinterpret_cast<char const*>(&n), sizeof n}; }
std::string zeros(std::size_t n) { return std::string(n, '\0'); }

/// A file with this header, and its length in front.
std::string with(std::string const& header, std::string const& data = {}) {
  return length(header.size()) + header + data;
}

/// One tensor "test" of this description.
std::string one(std::string const& dtype, std::string const& shape, std::string const& offsets) {
  return R"({"test":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

void save(std::filesystem::path const& path, std::string const& bytes) {
  std::ofstream{path, std::ios::binary}.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string load(std::filesystem::path const& path) {
  auto file = std::ifstream{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// A shape of n dimensions, for one element.
std::string ones(int n) { return n == 1 ? "[1]" : "[1," + ones(n - 1).substr(1); }

/// The number of tensors in a file of these bytes.
std::size_t count(std::string const& bytes) {
  auto const folder = Folder{};
  save(folder.file(), bytes);
  auto const file = SafetensorsFile::read(folder.file());
  return file.tensors().size();
}

/// What the reader says about these bytes; empty when it takes them.
std::string complaint(std::string const& bytes) {
  try {
    count(bytes);
  } catch (BadFile const& error) { return error.what(); }
  return {};
}

NamedTensor floats(std::string name, std::vector<float> const& values) {
  return {std::move(name), Dtype::f32, {values.size()}, std::as_bytes(Span<float const>{values})};
}

std::string const good = with(one("\"I32\"", "[2,2]", "[0,16]"), zeros(16));

}  // namespace

TEST_CASE("well-formed files are read: vectors 1 to 5 of the reference implementation", "[checkpoint][unit]") {
  CHECK(good[0] == 0x3C);
  CHECK(count(good) == 1);
  CHECK(count(with(one("\"I32\"", "[]", "[0,4]"), zeros(4))) == 1);
  CHECK(count(with("{}\r \t\n")) == 0);
  CHECK(count(with("\t\n{}\r ")) == 0);
  CHECK(count(with(one("\"I32\"", "[2,0]", "[0, 0]"))) == 1);
}

TEST_CASE("a file that breaks a rule is refused with its byte and numbers: vectors 6 to 16", "[checkpoint][unit]") {
  auto ten = std::string{"{"};
  for (char c = '0'; c <= '9'; ++c)
    ten += (c == '0' ? "\"" : ",\"") + std::string{c} + R"(":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]})";
  CHECK_THAT(complaint(good + "extra_bogus_data_for_polyglot_file"),
             Contains("byte 84: the tensors take 16 bytes, but 50 follow the header"));
  CHECK_THAT(complaint(good.substr(0, good.size() - 2)),
             Contains("byte 68: \"test\" ends at offset 16 of the data, but there are 14 bytes"));
  CHECK_THAT(complaint(std::string{"\x3C\0\0\0\0\xFF\xFF\xFF", 8} + good.substr(8)),
             Contains("byte 0: the header would have 18446742974197923900 bytes"));
  CHECK_THAT(complaint(""), Contains("byte 0: the file has 0 bytes"));
  CHECK_THAT(complaint(length(60)), Contains("byte 8: the header should have 60 bytes, but 0 are left"));
  CHECK_THAT(complaint(with("\xFF")), Contains("byte 8: the header does not begin with {"));
  CHECK_THAT(complaint(with("{")), Contains("byte 9: the header is not JSON: ") && Contains("unexpected end of input"));
  CHECK_THAT(complaint(with(one("\"I32\"", "[2,2]", "[0, 4]"))),
             Contains("\"test\" takes 16 bytes, but has data_offsets from 0 to 4"));
  for (auto const* shape : {"[2,18446744073709551614]", "[2,9223372036854775807]"})
    CHECK_THAT(complaint(with(one("\"I32\"", shape, "[0,16]"), zeros(16))), Contains("more than 64 bits"));
  CHECK_THAT(complaint(with(ten + "}", zeros(16))),
             Contains("begins at offset 0 of the data, but the one before it ends at 16"));
}

TEST_CASE("a shape that wraps around, or ends in half a byte, has no size", "[checkpoint][unit]") {
  CHECK_THAT(complaint(with(one("\"U8\"", "[65536,65536,65536,65536]", "[0,0]"))), Contains("more than 64 bits"));
  CHECK_THAT(complaint(with(one("\"U8\"", "[4294967296,4294967296]", "[0,0]"))), Contains("more than 64 bits"));
  CHECK_THAT(complaint(with(one("\"F4\"", "[3]", "[0,2]"), zeros(2))), Contains("half a byte"));
  CHECK(count(with(one("\"F4\"", "[4]", "[0,2]"), zeros(2))) == 1);
}

TEST_CASE("tensors with a hole, an overlap or a turned range between them are refused", "[checkpoint][unit]") {
  auto const two = [](std::string const& a, std::string const& b, std::size_t size) {
    auto const start = std::string{R"({"dtype":"U8","shape":[4],"data_offsets":)"};
    return with("{\"a\":" + start + a + "},\"b\":" + start + b + "}}", zeros(size));
  };
  CHECK(count(two("[4,8]", "[0,4]", 8)) == 2);
  CHECK_THAT(complaint(two("[0,4]", "[5,9]", 9)), Contains("\"b\" begins at offset 5") && Contains("ends at 4"));
  CHECK_THAT(complaint(two("[0,4]", "[3,7]", 7)), Contains("\"b\" begins at offset 3") && Contains("ends at 4"));
  CHECK_THAT(complaint(two("[0,4]", "[8,4]", 8)), Contains("data_offsets from 8 to 4"));
  CHECK_THAT(complaint(two("[1,5]", "[5,9]", 9)), Contains("\"a\" begins at offset 1"));
}

TEST_CASE("a description with a value of the wrong kind is refused", "[checkpoint][unit]") {
  auto const row  = GENERATE(table<std::string, std::string>({
      {one("\"U8\"", "[1]", "[-1,0]"), "holds the negative number -1"},
      {one("\"U8\"", "[1]", "[0,0.5]"), "holds the number 0.5"},
      {one("\"U8\"", "[1]", "[0,1e0]"), "holds the number 1e0"},
      {one("\"U8\"", "[1]", "[0,1e3]"), "holds the number 1e3"},
      {one("\"U8\"", "[18446744073709551616]", "[0,1]"), "holds the number 18446744073709551616"},
      {one("\"U8\"", "[1]", "[1]"), "\"test\" has 1 data_offsets, but 2 are needed"},
      {one("\"U8\"", "[1]", "[0,1,1]"), "more than 2 data_offsets"},
      {one("\"U8\"", "[1]", "[[0,1]]"), "holds an array"},
      {one("\"U8\"", "1", "[0,1]"), "\"shape\" of \"test\" is the number 1, but an array is needed"},
      {one("\"U8\"", "[\"1\"]", "[0,1]"), "holds a string"},
      {one("\"u8\"", "[1]", "[0,1]"), "unknown dtype \"u8\""},
      {one("\"FLOAT\"", "[1]", "[0,1]"), "unknown dtype \"FLOAT\""},
      {one("null", "[1]", "[0,1]"), "\"dtype\" of \"test\" is null, but a string is needed"},
      {one("[\"U8\"]", "[1]", "[0,1]"), "\"dtype\" of \"test\" is an array"},
      {R"({"test":{"dtype":"U8","shape":[1]}})", "\"test\" has no \"data_offsets\""},
      {R"({"test":5})", "\"test\" is the number 5, but an object is needed"},
      {R"({"__metadata__":{"a":1}})", "\"a\" of __metadata__ is the number 1, but needs a string"},
      {R"({"__metadata__":{"a":{"b":"c"}}})", "\"a\" of __metadata__ is an object"},
      {R"({"__metadata__":null})", "\"__metadata__\" is null"},
      {"[]", "does not begin with {"},
      {"", "does not begin with {"},
      {"\xEF\xBB\xBF{}", "does not begin with {"},
      {"{}{}", "is not JSON"},
      {"{/**/}", "is not JSON"},
      {std::string{"{}\0", 3}, "byte 10: the header has a zero byte"},
      {R"({"a\u0000b":{}})", "a name has a zero byte"},
      {R"({"\ud800":{}})", "is not JSON"},
      {"{\"\xC0\xAF\":{}}", "is not JSON"},
      {"{\"" + std::string(1U << 20, 'n') + "\":{}}", "a name has 1048576 bytes, above the limit of 4096"},
      {R"({"a":{"x":)" + std::string(10'000, '[') + std::string(10'000, ']') + "}}", "deeper than 4 levels"},
      {one("\"U8\"", ones(65), "[0,1]"), "\"test\" has more than 64 dimensions"},
  }));
  auto const said = complaint(with(std::get<0>(row), zeros(1)));
  CHECK_THAT(said, Contains(std::get<1>(row)) && Contains("x.safetensors: byte ") && Contains("\n         Try: "));
}

TEST_CASE("a name, a field, a key of the metadata and the metadata must not appear twice", "[checkpoint][unit]") {
  auto const entry = std::string{R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})"};
  for (auto const* a : {"a", "\\u0061"})
    CHECK_THAT(complaint(with("{\"a\":" + entry + ",\"" + a + "\":" + entry + "}")), Contains("two tensors \"a\""));
  CHECK_THAT(complaint(with(R"({"a":{"dtype":"U8","dtype":"U8"}})")), Contains("\"a\" has two of \"dtype\""));
  CHECK_THAT(complaint(with(R"({"__metadata__":{"k":"1","k":"2"}})")), Contains("__metadata__ has \"k\" twice"));
  CHECK_THAT(complaint(with(R"({"__metadata__":{},"__metadata__":{}})")), Contains("two of __metadata__"));
}

TEST_CASE("unknown keys of a tensor are passed over, and a name may be anything", "[checkpoint][unit]") {
  auto const folder = Folder{};
  save(folder.file(), with(R"({"__metadata__":{"format":"pt"},"../x":{"note":{"shape":[7]},"x":null,"y":[1,"2"],)"
                           R"("dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                           "!"));
  auto const file = SafetensorsFile::read(folder.file());
  REQUIRE(file.find("../x") != nullptr);
  CHECK(file.at("../x").bytes.front() == std::byte{'!'});
  CHECK(file.at("../x").shape == std::vector<std::uint64_t>{1});
  CHECK(file.metadata().at("format") == "pt");
}

TEST_CASE("a length that is zero, too large, or one too many is refused", "[checkpoint][unit]") {
  CHECK_THAT(complaint(length(0)), Contains("does not begin with {"));
  CHECK_THAT(complaint(length(std::uint64_t{1} << 63) + "{}"), Contains("above the limit of 100000000"));
  CHECK_THAT(complaint(length(~std::uint64_t{7}) + "{}"), Contains("18446744073709551608 bytes, above"));
  CHECK_THAT(complaint(length(3) + "{}"), Contains("should have 3 bytes, but 2 are left"));
}

TEST_CASE("a file cut off after any of its bytes is refused", "[checkpoint][unit]") {
  for (std::size_t n = 0; n < good.size(); ++n) CHECK_FALSE(complaint(good.substr(0, n)).empty());
}

TEST_CASE("what is written is read back, and lies by type and name behind a padded header", "[checkpoint][unit]") {
  auto const folder  = Folder{};
  auto const weights = std::vector<float>{1.5F, -2, 0};
  auto const step    = std::vector<std::uint64_t>{7};
  auto const counter = NamedTensor{"step", Dtype::u64, {}, std::as_bytes(Span<std::uint64_t const>{step})};
  write_safetensors(folder.file(), {floats("b", weights), floats("a", weights), counter}, {{"made by", "a \"test\""}});

  auto const bytes    = load(folder.file());
  auto const expected = std::string{R"({"__metadata__":{"made by":"a \"test\""},)"
                                    R"("step":{"dtype":"U64","shape":[],"data_offsets":[0,8]},)"
                                    R"("a":{"dtype":"F32","shape":[3],"data_offsets":[8,20]},)"
                                    R"("b":{"dtype":"F32","shape":[3],"data_offsets":[20,32]}})"};
  CHECK(bytes.substr(8, expected.size()) == expected);
  CHECK((bytes.size() - 32) % 8 == 0);
  auto const file = SafetensorsFile::read(folder.file());
  CHECK(file.floats("a") == weights);
  CHECK(file.floats("b") == weights);
  CHECK(file.at("step").dtype == Dtype::u64);
  CHECK(file.metadata().at("made by") == "a \"test\"");
}

TEST_CASE("a tensor that is missing, of another type or size says so", "[checkpoint][unit]") {
  auto const folder = Folder{};
  save(folder.file(), good);
  auto const file = SafetensorsFile::read(folder.file());
  auto four       = std::vector<float>(4);
  CHECK_THROWS_WITH(file.at("tset"), Contains("has no tensor \"tset\", but 1 others") && Contains("Try: \"test\""));
  CHECK_THROWS_WITH(file.copy("test", four), Contains("\"test\" is I32, but F32 is needed"));
  write_safetensors(folder.file(), {floats("w", {1, 2, 3})});
  auto const three = SafetensorsFile::read(folder.file());
  CHECK_THROWS_WITH(three.copy("w", four), Contains("\"w\" has 3 elements, but 4 are needed"));
}

TEST_CASE("a caller's tensors that do not make a file are refused before anything is written", "[checkpoint][unit]") {
  auto const folder = Folder{};
  auto const values = std::vector<float>{1, 2};
  auto wrong        = floats("w", values);
  wrong.shape       = {3};
  CHECK_THROWS_AS(write_safetensors(folder.file(), {wrong}), BadArgument);
  auto const w = floats("w", values);
  CHECK_THROWS_WITH(write_safetensors(folder.file(), {w, w}), Contains("\"w\" is taken"));
  CHECK_THROWS_AS(write_safetensors(folder.file(), {floats("__metadata__", values)}), BadArgument);
  CHECK_THROWS_WITH(write_safetensors(folder.file(), {floats("\xFF", values)}), Contains("is not UTF-8"));
  CHECK(folder.entries() == 0);
}

TEST_CASE("when there is no room the old file stays whole and nothing is left beside it", "[checkpoint][unit]") {
  auto const folder = Folder{};
  auto const large  = std::vector<float>(100'000);
  write_safetensors(folder.file(), {floats("w", {1, 2, 3})});
  auto const before = load(folder.file());

  auto said = std::string{};
  try {
    auto const full = chorale::test::FullDisk{65'536};
    write_safetensors(folder.file(), {floats("w", large)});
  } catch (BadFile const& error) { said = error.what(); }
  CHECK_THAT(said, Contains("x.safetensors: byte 65536: cannot write the next ") && Contains("File too large"));
  CHECK_THAT(said, Contains("Try: room for it there"));
  CHECK(load(folder.file()) == before);
  CHECK(folder.entries() == 1);
}

TEST_CASE("a file is as it was until the new one is committed, whether that has a name before or not",
          "[checkpoint][unit]") {
  auto const named  = GENERATE(false, true);
  auto const folder = Folder{};
  if (!named && !unnamed_or_skip(folder, "a file is as it was until the new one is committed")) return;
  auto const write = [&](std::string const& text, bool commit) {
    auto file = AtomicFile{folder.file(), named};
    file.write(std::as_bytes(Span<char const>{text}));
    CHECK(folder.entries() == (named ? 1U : 0U) + (std::filesystem::exists(folder.file()) ? 1U : 0U));
    if (commit) file.commit();
  };
  write("one", false);
  CHECK(folder.entries() == 0);
  write("one", true);
  CHECK(load(folder.file()) == "one");
  write("two", false);
  CHECK(load(folder.file()) == "one");
  write("two", true);
  CHECK(load(folder.file()) == "two");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a process that is killed while it writes a file leaves the old one, and nothing beside it",
          "[checkpoint][unit]") {
  auto const folder = Folder{};
  if (!unnamed_or_skip(folder, "a process that is killed while it writes a file leaves nothing beside it")) return;
  write_safetensors(folder.file(), {floats("w", {1, 2, 3})});
  auto const before = load(folder.file());
  auto process      = chorale::test::Processes{1, [&](int, chorale::test::Voice voice) {
                                            auto file = AtomicFile{folder.file()};
                                            file.write(std::as_bytes(Span<char const>{"half"}));
                                            voice.say("half is written");
                                            ::raise(SIGKILL);
                                            file.commit();
                                          }};
  CHECK(process.line(0) == "half is written");
  CHECK(process.exit(0) == 128 + SIGKILL);
  CHECK(load(folder.file()) == before);
  CHECK(folder.entries() == 1);
}

TEST_CASE("a path that cannot be written or read is an error with the system's reason", "[checkpoint][unit]") {
  auto const folder = Folder{};
  auto const absent = folder.path / "absent" / "x.safetensors";
  CHECK_THROWS_WITH(write_safetensors(absent, {}), Contains("No such file or directory"));
  CHECK_THROWS_WITH(SafetensorsFile::read(absent), Contains("cannot be opened: No such file or directory"));
  CHECK_THROWS_WITH(SafetensorsFile::read(folder.path), Contains("is a folder, and only regular files"));
  std::filesystem::create_directories(folder.file() / "full");
  CHECK_THROWS_AS(write_safetensors(folder.file(), {}), BadFile);  // it cannot take the place of a folder
  CHECK(folder.entries() == 1);
}

TEST_CASE("a file that is replaced while it is open stays as it was for its reader", "[checkpoint][unit]") {
  auto const folder = Folder{};
  write_safetensors(folder.file(), {floats("w", {1, 2, 3})});
  auto const old = SafetensorsFile::read(folder.file());
  write_safetensors(folder.file(), {floats("w", {4})});
  CHECK(old.floats("w").size() == 3);
  CHECK(SafetensorsFile::read(folder.file()).floats("w") == std::vector<float>{4});
}

}  // namespace safetensors_test
