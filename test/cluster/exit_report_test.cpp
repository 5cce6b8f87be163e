// SPDX-License-Identifier: Apache-2.0
#include "test/support/folder.hpp"

#include <chorale/cluster/exit_report.hpp>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <string>

using namespace chorale;
using chorale::test::Folder;

TEST_CASE("why a process ends is told to the launcher that gave it a file", "[cluster]") {
  auto const folder = Folder{};
  auto const path   = (folder / "error.json").string();
  auto const lost   = PeerLost{1, "rank 0 lost \"rank 1\":\nit was\tkilled \xff."};
  auto out          = std::ostringstream{};
  CHECK(report_exit(lost, {{"TORCHELASTIC_ERROR_FILE", path}}, out) == exit_code(lost));
  CHECK(out.str() == std::string{lost.what()} + "\n");
  auto const told = nlohmann::json::parse(std::ifstream{path});
  CHECK_THAT(told["message"]["message"].get<std::string>(), Catch::Contains("rank 0 lost \"rank 1\":\n"));
  CHECK(std::stoll(told["message"]["extraInfo"]["timestamp"].get<std::string>()) > 1'700'000'000);
}

TEST_CASE("a launcher's file that cannot be written is said, and nothing else changes", "[cluster]") {
  auto const wrong = BadArgument{"it is wrong."};
  auto out = std::ostringstream{}, alone = std::ostringstream{};
  CHECK(report_exit(wrong, {{"TORCHELASTIC_ERROR_FILE", "/nowhere/error.json"}}, out) == 2);
  CHECK_THAT(out.str(),
             Catch::Contains("it is wrong.") && Catch::Contains("cannot write TORCHELASTIC_ERROR_FILE, /nowhere"));
  CHECK(report_exit(wrong, {}, alone) == 2);
  CHECK(alone.str() == std::string{wrong.what()} + "\n");
}
