// SPDX-License-Identifier: Apache-2.0
#include "test/placement/shapes.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <new>
#include <sstream>

namespace {
std::size_t allocated = 0;  // bytes, since this program began
}

// Not inlined: gcc would see malloc and free where it looks for new and delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocated += bytes;
  if (void* const p = std::malloc(bytes)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  allocated += bytes;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

using namespace chorale;
using namespace chorale::placement;
using namespace chorale::test;

namespace {

constexpr auto specs   = std::array{VariableSpec{"kernel", {3, 3, 1, 32}, 4}, VariableSpec{"bias", {32}, 1},
                                  VariableSpec{"kernel", {5407, 10}, 2}};
constexpr auto names   = std::array{Name{"conv2d/kernel"}, Name{"conv2d/bias"}, Name{"dense/kernel"}};
constexpr auto net     = make_plan<3, 2>(specs, names, {0, 0, 1});
constexpr auto shapes  = shapes_of(net);
constexpr auto& halves = layout_of<Partitioned<FixedShards<2>, GreedyByBytes>, shapes, 2, 2>;

static_assert(shapes[2] == VariableShape{"dense/kernel", {5407, 10}});
static_assert(halves.pieces.size() == 6 && halves.total_bytes() == 3 * 4 * net.parameters);

// 110 million parameters, planned by the compiler.
static_assert(parameters_of(bert) == 109'482'240);
static_assert(layout_of<GreedyByBytes, bert, 4>.total_bytes() == 4 * parameters_of(bert));
static_assert(layout_of<RoundRobin, bert, 4>.imbalance() > 1.5);  // one server has the table of words
static_assert(layout_of<GreedyByBytes, bert, 4>.imbalance() < 1.01);
static_assert(layout_of<Partitioned<MaxSize<(4 << 20)>, GreedyByBytes>, bert, 40>.imbalance() < 1.2);

/// Cuts every variable in two and leaves something wrong.
struct Wrong : Central {
  std::size_t gap = 0, beyond = 0;
  int server = 0;

  std::vector<Piece> cut(Span<VariableShape const> variables) const {
    auto pieces = std::vector<Piece>{};
    for (std::size_t v = 0; v < variables.size(); ++v) {
      pieces.push_back({v, {0, 1}});
      pieces.push_back({v, {1 + gap, variables[v].extent(0) + beyond}});
    }
    return pieces;
  }
  void assign(Span<Piece> pieces, Span<VariableShape const>, int) const {
    for (auto& piece : pieces) piece.server = server;
  }
};

}  // namespace

TEST_CASE("a layout is the same at run time as in the compiler", "[placement]") {
  auto const layout = lay_out(Partitioned<FixedShards<2>, GreedyByBytes>{}, shapes, 2, 2);
  CHECK(std::equal(layout.pieces.begin(), layout.pieces.end(), halves.pieces.begin(), halves.pieces.end()));
  CHECK(layout.bytes_of(0) == halves.bytes_of(0));
  CHECK(layout.bytes_of(0) + layout.bytes_of(1) == layout.total_bytes());
}

TEST_CASE("17 billion parameters are planned without a value of them", "[placement]") {
  auto const variables = turing();
  CHECK(parameters_of(variables) == 17'176'837'216);
  auto const before = allocated;
  auto const layout = lay_out(Partitioned<MaxSize<(256 << 20)>, GreedyByBytes>{}, variables, 16, 2);
  CHECK(allocated - before < 1 << 20);  // 206 GB of variables and slots
  CHECK(layout.total_bytes() == 12 * std::size_t{17'176'837'216});
  CHECK(layout.imbalance() < 1.02);
  CHECK(layout.pieces.size() < 2'000);
}

TEST_CASE("a layout prints as a table", "[placement]") {
  auto const variables = std::vector<VariableShape>{{"dense/kernel", {7, 64}}, {"dense/bias", {64}}, {"step", {}, 8}};
  auto text            = std::ostringstream{};
  text << lay_out(Partitioned<FixedShards<2>>{}, variables, 2, 1);
  CHECK(text.str() ==
        "dense/kernel  [0:4, 64]  server 0  2048 bytes\n"
        "dense/kernel  [4:7, 64]  server 1  1536 bytes\n"
        "dense/bias    [0:32]     server 0  256 bytes\n"
        "dense/bias    [32:64]    server 1  256 bytes\n"
        "step          []         server 0  16 bytes\n"
        "server 0: 2320 bytes\n"
        "server 1: 1792 bytes\n"
        "3 variables, 5 pieces, 2 servers, 4112 bytes, heaviest / mean 1.13\n");
}

TEST_CASE("servers hold disjoint ranges of a network's buffer, which cover all variables", "[placement]") {
  each_sharding([&](auto const& sharding, int) {
    auto const layout = lay_out(sharding, shapes, 3);
    auto owners       = std::vector<int>(net.elements);
    for (int server = 0; server < 3; ++server) {
      auto last = Range{};
      for (Range const range : ranges_on(server, layout, net.variables)) {
        CHECK((range.size() > 0 && (range.begin > last.end || last.end == 0)));
        last = range;
        for (auto i = range.begin; i < range.end; ++i) ++owners.at(i);
      }
    }
    for (std::size_t i = 0; i < net.elements; ++i) {
      auto const used = std::any_of(net.variables.begin(), net.variables.end(),
                                    [i](auto const& v) { return i >= v.offset && i < v.end(); });
      if (owners[i] != (used ? 1 : 0)) FAIL("element " << i << " has " << owners[i] << " owners");
    }
  });
  auto const on_one = ranges_on(0, lay_out(Partitioned<FixedShards<3>>{}, shapes, 1), net.variables);
  CHECK(on_one.size() == 2);  // dense/kernel, padding, both of conv2d
}

TEST_CASE("what cannot be laid out is refused with a sentence", "[placement]") {
  auto const some = std::vector<VariableShape>{{"a", {4}}, {"b", {4, 2}}};
  CHECK_THROWS_WITH(lay_out(RoundRobin{}, some, 0), Catch::Contains("variables are dealt out to 0 servers"));
  CHECK_THROWS_WITH(lay_out(RoundRobin{}, some, 2, -1), Catch::Contains("an optimizer with -1 slots"));
  CHECK_THROWS_WITH((VariableShape{"a", {1, 1, 1, 1, 1}}), Catch::Contains("a has 5 dimensions, at most 4 fit"));
  CHECK_THROWS_WITH((VariableShape{"a", {huge.dims[0], 10'000}}), Catch::Contains("do not fit into 64 bits"));
  CHECK_THROWS_WITH((VariableShape{std::string(97, 'x'), {1}}), Catch::Contains("has 97 characters, at most 96 fit"));
  CHECK_THROWS_WITH((VariableShape{"a", {4}, 0}), Catch::Contains("its elements have 0 bytes"));
  CHECK(VariableShape{"a", {huge.dims[0], 10, 0}}.elements() == 0);
  auto const many = std::vector<VariableShape>(200, huge);
  CHECK_NOTHROW(lay_out(RoundRobin{}, many, 2));
  CHECK_THROWS_WITH(lay_out(RoundRobin{}, many, 2, 2), Catch::Contains("with 2 slots each, do not fit into 64 bits"));
  CHECK_THROWS_WITH(runs(Piece{0, {2, 5}}, some[0]),
                    Catch::Contains("variable a has 4 rows along axis 0, not the rows 2 to 5"));
  CHECK_THROWS_WITH(ranges_on(0, lay_out(RoundRobin{}, some, 2), net.variables),
                    Catch::Contains("a layout of 2 variables for a network with 3"));
}

TEST_CASE("a cut of one's own that leaves rows out is refused", "[placement]") {
  auto const some = std::vector<VariableShape>{{"a", {4}}, {"b", {4, 2}}};
  CHECK_NOTHROW(lay_out(Wrong{}, some, 2));
  CHECK_THROWS_WITH(lay_out(Wrong{{}, 1}, some, 2), Catch::Contains("the pieces of variable a cover 1 of 4 rows"));
  CHECK_THROWS_WITH(lay_out(Wrong{{}, 0, 3}, some, 2), Catch::Contains("the pieces of variable a reach row 7 of 4"));
  CHECK_THROWS_WITH(lay_out(Wrong{{}, 0, 0, 2}, some, 2), Catch::Contains("variable a is on server 2 of 2"));
}
