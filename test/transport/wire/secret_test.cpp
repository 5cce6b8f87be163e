// SPDX-License-Identifier: Apache-2.0
#include "test/support/folder.hpp"

#include <chorale/transport/secret.hpp>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <string_view>

namespace secret_test {

using namespace chorale;

namespace {

template <class T> concept Printable = requires(std::ostream& out, T const& x) { out << x; };

static_assert(!Printable<Secret> && Printable<std::string>);

ConstBytes bytes_of(std::string_view s) { return std::as_bytes(Span<char const>{s}); }
std::string text_of(Secret const& secret) {
  return {reinterpret_cast<char const*>(secret.bytes().data()), secret.bytes().size()};
}

/// A file with these contents and this mode, in a folder of its own.
struct File {
  chorale::test::Folder folder{};
  std::filesystem::path path = folder / "secret";

  File(std::string_view contents, unsigned mode) {
    std::ofstream{path, std::ios::binary} << contents;
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
  }
};

std::string const sixteen = "0123456789abcdef";

}  // namespace

TEST_CASE("a secret has 16 to 4096 bytes", "[transport][secret]") {
  CHECK(text_of(Secret{bytes_of(sixteen)}) == sixteen);
  CHECK(Secret{bytes_of(std::string(4096, 'x'))}.bytes().size() == 4096);
  CHECK_THROWS_WITH(Secret{bytes_of("too short")}, Catch::Contains("9 bytes") && Catch::Contains("16 to 4096"));
  CHECK_THROWS_AS(Secret{bytes_of(std::string(4097, 'x'))}, BadArgument);
  CHECK_THROWS_AS(Secret{ConstBytes{}}, BadArgument);
}

TEST_CASE("copies of a secret share its bytes, so that one wipe is enough", "[transport][secret]") {
  auto const one = Secret{bytes_of(sixteen)};
  auto two       = one;
  CHECK(two.bytes().data() == one.bytes().data());
  two = Secret{bytes_of("another secret, as long as it needs to be")};
  CHECK(text_of(one) == sixteen);
}

TEST_CASE("a file gives its bytes without the line break at the end", "[transport][secret]") {
  for (auto const* end : {"", "\n", "\r\n"})
    CHECK(text_of(Secret::from_file(File{sixteen + end, 0600}.path)) == sixteen);
  CHECK(text_of(Secret::from_file(File{sixteen + "\n\n", 0600}.path)) == sixteen + "\n");
  auto const zeros = std::string(20, '\0');
  CHECK(text_of(Secret::from_file(File{zeros, 0400}.path)) == zeros);
  CHECK(Secret::from_file(File{std::string(4096, 'x') + "\r\n", 0600}.path).bytes().size() == 4096);
}

TEST_CASE("a file that others may read is refused, with its mode and the remedy", "[transport][secret]") {
  for (auto const mode : {0640U, 0604U, 0620U, 0602U, 0644U, 0666U}) {
    auto const file = File{sixteen, mode};
    CHECK_THROWS_AS(Secret::from_file(file.path), BadFile);
  }
  auto const file = File{sixteen, 0644};
  CHECK_THROWS_WITH(Secret::from_file(file.path), Catch::Contains("mode is 0644") && Catch::Contains("must be 0600") &&
                                                      Catch::Contains("chmod 600 " + file.path.string()) &&
                                                      !Catch::Contains(sixteen));
}

TEST_CASE("a file of another user is refused", "[transport][secret]") {
  auto const file = File{sixteen, 0600};
  if (::geteuid() != 0) {
    WARN("not checked here: only root can give a file away");
    return;
  }
  REQUIRE(::chown(file.path.c_str(), 12'345, 12'345) == 0);
  CHECK_THROWS_WITH(Secret::from_file(file.path), Catch::Contains("belongs to user 12345, and this is user 0"));
}

TEST_CASE("what is no file, or has too much or too little in it, is refused", "[transport][secret]") {
  CHECK_THROWS_WITH(Secret::from_file("/nowhere/at/all"), Catch::Contains("/nowhere/at/all: cannot be opened"));
  CHECK_THROWS_WITH(Secret::from_file("/"), Catch::Contains("is not a file"));
  CHECK_THROWS_WITH(Secret::from_file("/dev/zero"), Catch::Contains("is not a file"));
  auto const short_one = File{"short\n", 0600};
  CHECK_THROWS_WITH(Secret::from_file(short_one.path), Catch::Contains("has 5 bytes") && !Catch::Contains("short"));
  CHECK_THROWS_AS(Secret::from_file(File{std::string(4097, 'x'), 0600}.path), BadArgument);
  CHECK_THROWS_AS(Secret::from_file(File{std::string(100'000, 'x'), 0600}.path), BadArgument);
}

TEST_CASE("the environment names a file before it holds a secret itself, or has none", "[transport][secret]") {
  ::unsetenv("CHORALE_SECRET_FILE");
  ::unsetenv("CHORALE_SECRET");
  CHECK_FALSE(Secret::from_env());
  ::setenv("CHORALE_SECRET", "sixteen or more of them", 1);
  CHECK(text_of(*Secret::from_env()) == "sixteen or more of them");
  auto const file = File{sixteen, 0600};
  ::setenv("CHORALE_SECRET_FILE", file.path.c_str(), 1);
  CHECK(text_of(*Secret::from_env()) == sixteen);
  ::setenv("CHORALE_SECRET_FILE", "/nowhere/at/all", 1);
  CHECK_THROWS_AS(Secret::from_env(), BadFile);  // and not the other variable
  ::unsetenv("CHORALE_SECRET_FILE");
  ::setenv("CHORALE_SECRET", "short", 1);
  CHECK_THROWS_WITH(Secret::from_env(), Catch::Contains("CHORALE_SECRET has 5 bytes"));
  ::unsetenv("CHORALE_SECRET");
}

}  // namespace secret_test
