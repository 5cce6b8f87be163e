// SPDX-License-Identifier: Apache-2.0
#include "test/support/processes.hpp"

#include <chorale/core/standard_files.hpp>

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace standard_files_test {

using chorale::test::Processes;
using chorale::test::Voice;

bool is_null_device(int file) {
  struct stat status{}, null{};
  return ::fstat(file, &status) == 0 && ::stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev;
}

TEST_CASE("a program that starts without standard files has /dev/null in their places", "[core][processes]") {
  int const without = GENERATE(2, 3, 6, 7);  // bits: descriptors 0, 1, 2
  auto process      = Processes{1,
                           [&](int, Voice) {
                             for (int file = 0; file <= 2; ++file)
                               if ((without >> file & 1) != 0) ::close(file);
                             auto const text = std::to_string(without);
                             ::setenv("CHORALE_TEST_WITHOUT", text.c_str(), 1);
                             ::execl("/proc/self/exe", "standard_files_test", "[.standard_files]", nullptr);
                           },
                           60};
  CHECK(process.exit(0) == 0);
}

// What the one above starts: main() and the library's own files come later.
TEST_CASE("each missing standard file is the null device", "[.standard_files]") {
  auto const* const text = std::getenv("CHORALE_TEST_WITHOUT");
  REQUIRE(text != nullptr);
  for (int file = 0; file <= 2; ++file) {
    INFO(file);
    CHECK(::fcntl(file, F_GETFD) >= 0);
    CHECK(((std::stoi(text) >> file & 1) == 0 || is_null_device(file)));
  }
  auto* const first = std::tmpfile();
  REQUIRE(first != nullptr);
  CHECK(::fileno(first) > 2);
  std::fclose(first);
}

}  // namespace standard_files_test
