// SPDX-License-Identifier: Apache-2.0
// Names and options as ranks compare them: one text from every compiler.
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace names {

enum class Kind { first, second };
struct Plain {};
template <int N, class... Options> struct Layer {};
template <Kind K, bool B, unsigned long L, char C> struct Values {};
template <class T> struct Of {};
template <auto V> struct Any {};

struct Rule {
  float rate         = 0.001F;
  double decay       = 0.1;
  std::int64_t steps = -3;
  bool on            = true;

  void options(auto&& visit) const {
    visit("rate", rate);
    visit("decay", decay);
    visit("steps", steps);
    visit("on", on);
    visit("kind", std::string_view{"fast"});
    visit("enum", Kind::second);
  }
};
struct Named {
  static std::string text() { return "Named<4>"; }
};

}  // namespace names

namespace {

struct Unnamed {};

}  // namespace

using namespace chorale;

TEST_CASE("the name of a type does not tell which compiler wrote it", "[core][type_name]") {
  struct Local {};
  auto lambda  = [](int) {};
  auto generic = [](auto) {};
  CHECK(type_name<names::Plain>() == "names::Plain");
  CHECK(type_name<names::Layer<3>>() == "names::Layer<3>");
  CHECK(type_name<names::Layer<3, names::Layer<4, names::Plain>, float>>() ==
        "names::Layer<3,names::Layer<4,names::Plain>,float>");
  CHECK(type_name<names::Values<names::Kind::second, true, 5, 'c'>>() ==
        "names::Values<names::Kind::second,true,5,'c'>");
  CHECK(type_name<names::Any<3U>>() == "names::Any<3>");
  CHECK(type_name<names::Any<-3L>>() == "names::Any<-3>");
  CHECK(type_name<names::Of<unsigned long>>() == "names::Of<unsigned_long>");
  CHECK(type_name<names::Of<long long>>() == "names::Of<long_long>");
  CHECK(type_name<names::Of<unsigned short>>() == "names::Of<unsigned_short>");
  CHECK(type_name<names::Of<float const*>>() == "names::Of<const_float*>");
  CHECK(type_name<names::Of<std::string>>() == "names::Of<std::basic_string<char>>");
  CHECK(type_name<Unnamed>() == "Unnamed");
  CHECK(type_name<names::Of<Unnamed>>() == "names::Of<Unnamed>");
  CHECK(type_name<Local>() == "Local");
  CHECK(type_name<names::Of<Local>>() == "names::Of<Local>");
  CHECK(type_name<decltype(lambda)>() == "lambda");
  CHECK(type_name<names::Of<decltype(generic)>>() == "names::Of<lambda>");
  CHECK(type_name<Seed>() == "Seed");  // of this library: without its namespace
}

TEST_CASE("an object says its type and each of its options in a line", "[core][type_name]") {
  auto lines = std::vector<std::string>{};
  describe("optimizer", names::Rule{}, lines);
  CHECK(lines == std::vector<std::string>{"optimizer names::Rule", "optimizer names::Rule rate 0.001",
                                          "optimizer names::Rule decay 0.1", "optimizer names::Rule steps -3",
                                          "optimizer names::Rule on yes", "optimizer names::Rule kind fast",
                                          "optimizer names::Rule enum 1"});
  lines.clear();
  describe("loss", names::Plain{}, lines);
  describe("loss", names::Named{}, lines);
  CHECK(lines == std::vector<std::string>{"loss names::Plain", "loss Named<4>"});
}

TEST_CASE("a number is the fewest digits that give it back", "[core][type_name]") {
  CHECK(word_of(0.1F) == "0.1");
  CHECK(word_of(1e-7F) == "1e-07");
  CHECK(word_of(std::nextafter(0.1F, 1.0F)) == "0.10000001");
  CHECK(word_of(0.1) == "0.1");
  CHECK(word_of(16'777'216.0F) == "16777216");
}
