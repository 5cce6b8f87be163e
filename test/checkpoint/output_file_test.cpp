// SPDX-License-Identifier: Apache-2.0
//
// Every function that writes a file, against paths where something else than a regular file is.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/core/output_file.hpp>
#include <chorale/data/formats/npy.hpp>
#include <chorale/data/formats/tfrecord.hpp>
#include <chorale/data/stages/file_cache_writer.hpp>
#include <chorale/observe/csv.hpp>
#include <chorale/observe/run_file.hpp>
#include <chorale/observe/timeline.hpp>

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace output_file_test {

using namespace chorale;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Folder : chorale::test::Folder {
  fs::path file() const { return path / "model.safetensors"; }
  std::size_t entries() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator{path}, {})); }
};

using Write = std::function<void(fs::path const&)>;

/// Everything that writes a file, by its name.
std::vector<std::pair<std::string, Write>> writers() {
  return {
      {"Trainer::save",
       [](fs::path const& to) { tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]}).save(to); }},
      {"write_safetensors", [](fs::path const& to) { write_safetensors(to, {}); }},
      {"replace_file", [](fs::path const& to) { replace_file(to, "text"); }},
      {"RunFile", [](fs::path const& to) { RunFile{to, RunFile::Open::fresh}.append("text"); }},
      {"CsvLog", [](fs::path const& to) { CsvLog{to, {"loss"}}; }},
      {"Timeline", [](fs::path const& to) { Timeline{to}; }},
      {"write_npy",
       [](fs::path const& to) {
         auto const value = 1.0F;
         data::write_npy(to, {1}, Span<float const>{&value, 1});
       }},
      {"TfRecordWriter", [](fs::path const& to) { data::TfRecordWriter{to}.close(); }},
      {"CacheWriter", [](fs::path const& to) { data::CacheWriter{to, {}}.finish(); }},
  };
}

/// What it says about this path; empty when it writes.
std::string complaint(Write const& write, fs::path const& path) {
  try {
    write(path);
  } catch (BadFile const& error) { return error.what(); }
  return {};
}

std::string content(fs::path const& path) {
  auto from = std::ifstream{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{from}, {}};
}

/// Makes a socket that nobody listens at.
bool make_socket(fs::path const& path) {
  auto const number  = ::socket(AF_UNIX, SOCK_STREAM, 0);
  auto address       = sockaddr_un{};
  auto const text    = path.string();
  address.sun_family = AF_UNIX;
  if (text.size() >= sizeof address.sun_path) return ::close(number), false;
  std::copy(text.begin(), text.end(), address.sun_path);
  auto const made = ::bind(number, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(number);
  return made;
}

/// Nothing writes to what is there, also by way of a link; it stays as it is, and nothing is left beside it.
void check_refused(Folder const& folder, std::string const& kind) {
  auto const link = folder.path / "link";
  fs::create_symlink(folder.file().filename(), link);
  auto const type = fs::status(folder.file()).type();
  for (auto const& [name, write] : writers()) {
    INFO(name);
    for (auto const& path : {folder.file(), link})
      CHECK_THAT(complaint(write, path), Contains(path.string() + ": is " + kind + ", and only a regular file is") &&
                                             Contains("\n         Try: "));
    CHECK(fs::status(folder.file()).type() == type);
    CHECK(fs::is_symlink(link));
    CHECK(folder.entries() == 2);
  }
}

}  // namespace

TEST_CASE("a FIFO, a socket and a folder are never written or replaced", "[checkpoint][observe][data]") {
  auto const folder = Folder{};
  SECTION("FIFO") {
    REQUIRE(::mkfifo(folder.file().c_str(), 0600) == 0);
    auto const reader = ::open(folder.file().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // so that no writer waits
    check_refused(folder, "a FIFO");
    ::close(reader);
  }
  SECTION("socket") {
    if (make_socket(folder.file())) check_refused(folder, "a socket");
    else std::printf("SKIPPED: a socket is never written or replaced: none can be made in %s\n", folder.path.c_str());
  }
  SECTION("folder") {
    fs::create_directory(folder.file());
    check_refused(folder, "a folder");
  }
}

TEST_CASE("a device is never written or replaced, whoever asks", "[checkpoint][observe][data]") {
  auto const folder = Folder{};
  if (::mknod(folder.file().c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) {  // one like /dev/null
    std::printf("SKIPPED: a device is never written or replaced, whoever asks: none can be made here\n");
    return;
  }
  check_refused(folder, "a device");
}

TEST_CASE("a file is written through a symbolic link, which stays one", "[checkpoint][observe][data]") {
  for (auto const& [name, write] : writers()) {
    INFO(name);
    auto const folder = Folder{};
    fs::create_directory(folder.path / "run3");
    auto const target = folder.path / "run3" / "latest.safetensors";
    fs::create_symlink(fs::path{"run3"} / "latest.safetensors", folder.path / "inner");
    fs::create_symlink(folder.path / "inner", folder.file());  // a link to a link: absolute, then relative
    CHECK(complaint(write, folder.file()).empty());            // the target is not there yet
    CHECK(fs::is_regular_file(fs::symlink_status(target)));
    auto const first = content(target);
    fs::resize_file(target, 0);
    CHECK(complaint(write, folder.file()).empty());
    CHECK(fs::is_symlink(folder.file()));
    CHECK(fs::is_symlink(folder.path / "inner"));
    CHECK(content(target).size() == first.size());
    CHECK(folder.entries() == 3);  // nothing is left beside the link
    CHECK(std::distance(fs::directory_iterator{folder.path / "run3"}, {}) == 1);
  }
}

TEST_CASE("an empty name, the name of a folder and links in a circle are refused in a sentence", "[checkpoint]") {
  auto const folder = Folder{};
  fs::create_symlink("b", folder.path / "a");
  fs::create_symlink("a", folder.path / "b");
  for (auto const& [name, write] : writers()) {
    INFO(name);
    CHECK_THAT(complaint(write, ""), Contains("the file to write has the empty name \"\"") && Contains("Try: "));
    CHECK_THAT(complaint(write, folder.path.string() + "/"), Contains(": is a folder, and only a regular file"));
    CHECK_THAT(complaint(write, folder.path / "a"), Contains("a: more than 40 symbolic links"));
  }
  CHECK(folder.entries() == 2);
}

}  // namespace output_file_test
