// SPDX-License-Identifier: Apache-2.0
#include "test/cluster/said.hpp"

#include <chorale/cluster/resolvers/slurm.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

std::string joined(std::vector<std::string> const& all) {
  auto text = std::string{};
  for (auto const& one : all) text += (text.empty() ? "" : " ") + one;
  return text;
}

std::string joined(std::vector<int> const& all) {
  auto texts = std::vector<std::string>{};
  for (int const n : all) texts.push_back(std::to_string(n));
  return joined(texts);
}

struct Listed {
  std::string text, expected;
};

}  // namespace

TEST_CASE("a host list is multiplied out in Slurm's order", "[cluster][hostlist]") {
  auto const rows = std::vector<Listed>{
      {"a", "a"},
      {"a,b", "a b"},
      {"gpu[08-10]", "gpu08 gpu09 gpu10"},
      {"gpu[8-10]", "gpu8 gpu9 gpu10"},
      {"gnode[10,20,25-27]", "gnode10 gnode20 gnode25 gnode26 gnode27"},
      {"a1,b[2-3]", "a1 b2 b3"},
      {"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"},
      {"r[1-2]n[1-2],x", "r1n1 r1n2 r2n1 r2n2 x"},
      {"n[1-2]-ib.cluster_1", "n1-ib.cluster_1 n2-ib.cluster_1"},
      {"[1-3]", "1 2 3"},
      {"n[003]", "n003"},
      {"n[007-007]", "n007"},
      {"n[099-101]", "n099 n100 n101"},
      {"n[1][2]", "n12"},
      {"n[999999999]", "n999999999"},
  };
  for (auto const& [text, expected] : rows) {
    CAPTURE(text);
    CHECK(joined(hostlist::hosts(text)) == expected);
  }
}

TEST_CASE("a host list that is none says where", "[cluster][hostlist]") {
  auto const rows = std::vector<Listed>{
      {"", "character 1: a host is needed here"},
      {",a", "character 1: a host is needed here"},
      {"a,", "character 3: a host is needed here"},
      {"a,,b", "character 3: a host is needed here"},
      {"a b", "character 2: what follows is no part of a host"},
      {"a]", "character 2: what follows is no part of a host"},
      {"a[", "character 3: a number is needed here"},
      {"a[]", "character 3: a number is needed here"},
      {"a[1", "character 4: a ] is needed here"},
      {"a[1-", "character 5: a number is needed here"},
      {"a[1-2", "character 6: a ] is needed here"},
      {"a[1,]", "character 5: a number is needed here"},
      {"a[x]", "character 3: a number is needed here"},
      {"a[1[2]]", "character 4: a ] is needed here"},
      {"a[3-2]", "character 6: the range before this goes backwards"},
      {"a[1000000000]", "character 13: the number before this is above 999999999"},
      {"a[1-99999999999999999999]", "character 25: the number before this is above 999999999"},
      {"a[0000000000000000001]", "character 22: the number before this has too many digits"},
      {"a[0-65536]", "character 10: there are more than 65536 hosts"},
      {"a[0-255]b[0-256]", "character 16: there are more than 65536 hosts"},
      {"a[0-65535],b", "character 12: there are more than 65536 hosts"},
      {"a[0-99999][0-99999][0-99999]", "character 10: there are more than 65536 hosts"},
      {std::string(260, 'a'), "character 261: a host has more than 253 characters"},
  };
  for (auto const& [text, expected] : rows) {
    CAPTURE(text);
    auto const quoted = text.size() > 80 ? text.substr(0, 80) + "..." : text;
    CHECK(said([&text = text] { hostlist::hosts(text, "X"); }) == "X: \"" + quoted + "\", " + expected + ".");
  }
}

TEST_CASE("a host list has as many hosts as are allowed, and each name as many characters", "[cluster][hostlist]") {
  CHECK(hostlist::hosts("a[0-65535]").size() == 65'536);
  CHECK(hostlist::hosts("a[0-255]b[0-255]").back() == "a255b255");
  CHECK(hostlist::hosts("a[0-65534],b").back() == "b");
  CHECK(hostlist::hosts(std::string(253, 'a')).front().size() == 253);
}

TEST_CASE("tasks per node are multiplied out", "[cluster][hostlist]") {
  CHECK(joined(hostlist::counts("2(x3),1")) == "2 2 2 1");
  CHECK(joined(hostlist::counts("4")) == "4");
  CHECK(joined(hostlist::counts("1,2,3(x1)")) == "1 2 3");
  CHECK(hostlist::counts("1(x65536)").size() == 65'536);

  auto const rows = std::vector<Listed>{
      {"", "character 1: a number is needed here"},
      {"2(", "character 3: an x is needed here"},
      {"2(x", "character 4: a number is needed here"},
      {"2(x3", "character 5: a ) is needed here"},
      {"2(3)", "character 3: an x is needed here"},
      {"2,", "character 3: a number is needed here"},
      {"2 ", "character 2: what follows is no number"},
      {"0", "character 2: there is a 0 before this"},
      {"1(x0)", "character 6: there is a 0 before this"},
      {"-1", "character 1: a number is needed here"},
      {"65537", "character 6: the number before this is above 65536"},
      {"1(x65537)", "character 9: the number before this is above 65536"},
      {"1(x65536),1", "character 12: there are more than 65536 hosts"},
  };
  for (auto const& [text, expected] : rows) {
    CAPTURE(text);
    CHECK(said([&text = text] { hostlist::counts(text, "X"); }) == "X: \"" + text + "\", " + expected + ".");
  }
}
