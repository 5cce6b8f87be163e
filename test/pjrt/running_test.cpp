// SPDX-License-Identifier: Apache-2.0
#include "test/pjrt/fake_programs.hpp"
#include "test/support/count_allocations.hpp"

#include <chorale/pjrt/device/client.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace chorale;
using namespace chorale::test::fake;
using Catch::Contains;

TEST_CASE("the signature of a program is read from its text", "[pjrt][unit]") {
  CHECK(pjrt::signature_of(text) == signature);
  auto const all = pjrt::signature_of(R"(func.func
      @main(%0: tensor<4xbf16> {mhlo.sharding = "{a}}", jax.buffer_donor = true} ,
      %arg_1 : tensor<i1>, %x: tensor<1x0xui8, #some.encoding>) -> tensor<7xi64> {)");
  CHECK(all.arguments ==
        std::vector{pjrt::shape_of<bf16>({4}), pjrt::shape_of<bool>({}), pjrt::shape_of<std::uint8_t>({1, 0})});
  CHECK(all.results == std::vector{pjrt::shape_of<std::int64_t>({7})});
  CHECK(all.donated == std::vector<std::size_t>{0});
  CHECK(pjrt::signature_of("@main() {").arguments.empty());
  CHECK(pjrt::signature_of("@main() -> () {").results.empty());
  auto const wrong = [](std::string const& line) { return said<BadArgument>([&] { pjrt::signature_of(line); }); };
  CHECK_THAT(wrong("module @m {}"), Contains("cannot read what a program takes and gives: there is no @main"));
  CHECK_THAT(wrong("@main(%a: tensor<?xf32>)"), Contains("a dimension is no number"));
  CHECK_THAT(wrong("@main(%a: tensor<2xf8E4M3>)"), Contains("the element type \"f8E4M3\" is not used"));
  CHECK_THAT(wrong("@main(%a: tensor<2xf32"), Contains("a tensor's type has no end"));
  CHECK_THAT(wrong("@main(%a: i32)"), Contains("`tensor<` is needed, before \"i32)\""));
  CHECK_THAT(wrong("@main(%a: tensor<i32> {x = \"}"), Contains("an attribute has no end"));
  CHECK_THAT(wrong("@main(%a: tensor<1x1x1x1x1x1x1x1x1xi32>)"), Contains("there are more than 8 dimensions"));
}

TEST_CASE("a compilation names replicas and devices in its options", "[pjrt][unit]") {
  auto const client = fake_client(8);
  auto const bytes  = [](std::initializer_list<int> all) {
    auto line = std::string{};
    for (int const b : all) line += static_cast<char>(b);
    return line;
  };
  auto const executable = client.compile(text, signature, 8, {7, 6, 5, 4, 3, 2, 1, 0});
  CHECK(executable.devices() == std::vector{7, 6, 5, 4, 3, 2, 1, 0});
  CHECK(executable.program().replicas() == 8);
  CHECK(
      world().options_proto ==  // as XLA's protocol buffer library writes it
      bytes({0x1a, 0x21, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x20, 0x08, 0x28, 0x01, 0x4a,
             0x10, 0x08, 0x08, 0x10, 0x01, 0x1a, 0x0a, 0x0a, 0x08, 7,    6,    5,    4,    3,    2,    1,    0}));
  CHECK(client.compile(text, 2).devices() == std::vector{0, 1});
  CHECK(client.compile(text, 2).signature() == signature);

  auto const wrong = [&](auto const&... rest) {
    return said<BadArgument>([&] { client.compile(text, signature, rest...); });
  };
  CHECK_THAT(wrong(9), Contains("9 replicas do not fit on the 8 devices of the PJRT plug-in the fake plug-in."));
  CHECK_THAT(wrong(0), Contains("at least 1 replica, got 0"));
  CHECK_THAT(wrong(2, std::vector{0}), Contains("2 replicas need as many devices, and 1 are named"));
  CHECK_THAT(wrong(2, std::vector{0, 8}), Contains("there is no device 8 among the 8"));
  CHECK_THAT(wrong(2, std::vector{3, 3}), Contains("device 3 is named for two replicas"));
}

TEST_CASE("a program that cannot be compiled is shown at the plug-in's line and column", "[pjrt][unit]") {
  auto const client = fake_client(1);
  auto const bad    = std::string{
      "module @m {\n  func.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
         "    %0 = stablehlo.add %a %a : tensor<f32>\n    return %0 : tensor<f32>\n  }\n}\n"};
  auto const fault = [&](std::string const& words) {
    try {
      client.compile("// !fault " + words + "\n" + bad, 1);
    } catch (pjrt::CompileError const& error) {
      return std::tuple{std::string{error.what()}, error.line(), error.column(), error.code(), error.said()};
    }
    return std::tuple{std::string{}, -1, -1, -1, std::string{}};
  };
  auto const [what, line, column, code, words] = fault("-:4:26: error: expected ','");
  CHECK(what ==
        "chorale: the PJRT plug-in the fake plug-in cannot compile the program, line 4, column 26: expected "
        "',', in `%0 = stablehlo.add %a %a : tensor<f32>`.");
  CHECK(line == 4);
  CHECK(column == 26);
  CHECK(code == 2);
  CHECK_THAT(words, Contains("-:4:26: error: expected ','\n<unknown>:0: error: Failed to parse."));
  CHECK(std::get<1>(fault("-:x:1: -:7:2: error: later")) == 7);
  CHECK(std::get<1>(fault("-:99:1: error: beyond the text")) == 99);
  CHECK_THAT(std::get<0>(fault("Ran out of memory in memory space hbm")), Contains("Try: a smaller batch or model"));
  auto const none = fault("In cross_replica mode, -: no groups");
  CHECK(std::get<1>(none) == 0);
  CHECK_THAT(std::get<0>(none),
             Contains("cannot compile the program: In cross_replica mode, -: no groups (code 2, unknown)."));
  CHECK_THAT(std::get<4>(none), Contains("no groups\n<unknown>:0: error: Failed to parse."));
  auto const wide = std::string(300, 'x') + "%fault" + std::string(300, 'y');
  CHECK(pjrt::detail::line_of(wide, 1, 301).size() == 106);  // 100 characters around the column
  CHECK_THAT(pjrt::detail::line_of(wide, 1, 301), Contains("x%faulty"));
}

TEST_CASE("a signature that is not that of the text is refused before anything runs", "[pjrt][unit]") {
  auto const client = fake_client(1);
  auto const with   = [&](pjrt::Signature const& s, std::string const& more = {}) {
    return said<BadArgument>([&] { client.compile(text + more, s, 1); });
  };
  auto other         = signature;
  other.arguments[0] = pjrt::shape_of<std::int32_t>({2, 3});  // as many bytes: no plug-in would tell
  CHECK_THAT(with(other),
             Contains("argument 0 is tensor<2x3xf32> in the text of a program, and tensor<2x3xi32> in its"));
  other = signature;
  other.arguments.pop_back();
  CHECK_THAT(with(other), Contains("the text of a program has 2 arguments, and its signature 1"));
  other            = signature;
  other.results[1] = matrix;
  CHECK_THAT(with(other), Contains("result 1 is tensor<f32> in the text of a program, and tensor<2x3xf32> in its"));
  other = signature;
  other.donated.clear();
  CHECK_THAT(with(other), Contains("argument 0 of a program is donated in its text, and is not in its signature"));
  other.donated = {0, 1};
  CHECK_THAT(with(other), Contains("argument 1 of a program is not donated in its text, and is donated in its"));
  other.donated = {0, 2};
  CHECK_THAT(with(other), Contains("argument 2 of a program is to be donated, of 2"));
  CHECK_THAT(with(signature, "// other results"), Contains("a program has 3 results, and its signature 2"));
  CHECK(world().executables == 0);
}

TEST_CASE("a program that has ended is freed before the next compilation, or with its client", "[pjrt][unit]") {
  {
    auto const client = fake_client(1);
    client.compile(text, 1);
    CHECK(world().executables == 1);  // a plug-in may not free it at exit
    auto const second = client.compile(text, 1);
    CHECK(world().executables == 1);
  }
  CHECK(world().executables == 0);
}

TEST_CASE("a program runs on several devices, and takes over what is donated", "[pjrt][unit]") {
  {
    auto const client = fake_client(2);
    auto step         = client.compile(text, signature, 2);
    auto in           = Arguments{client, 2};
    auto results      = std::vector<std::vector<pjrt::Buffer>>{};
    step.run(in.list, results);
    REQUIRE(results.size() == 2);
    auto w = std::array<float, 6>{};
    results[1][0].get(w.data(), sizeof w);
    CHECK(w == std::array{0.f, 1.f, 2.f, 3.f, 4.f, 1.f});
    CHECK(results[1][0].device() == 1);
    CHECK(results[1][0].shape() == matrix);
    results[0][0].ready().wait();
    CHECK(in.state[0][0].donated());
    CHECK_FALSE(in.state[0][1].donated());
    CHECK_THAT(said<BadArgument>([&] { in.state[0][0].get(w.data(), sizeof w); }),
               Contains("a buffer of tensor<2x3xf32> on device 0 cannot be read: it was donated to a run."));
    CHECK_THAT(said<BadArgument>([&] { step.run(in.list, results); }),
               Contains("cannot be used as an argument: it was donated to a run."));
    results[1][0].get(w.data(), sizeof w);  // results are still there
    CHECK(w[5] == 1.f);

    auto state = Arguments{client, 2};  // in place: results are the next arguments
    for (int i = 0; i < 3; ++i) step.run(state.list, state.state);
    state.state[1][0].get(w.data(), sizeof w);
    CHECK(w[5] == 1.f);
    CHECK_FALSE(state.state[1][0].donated());

    world().allocations = &chorale::test::allocations;
    auto const before   = chorale::test::allocations;
    step.run(state.list, state.state);
    CHECK(chorale::test::allocations == before);
    world().allocations = nullptr;
    client.synchronize();
  }
  auto const& w = world();
  CHECK(std::tuple{w.buffers, w.events, w.executables, w.clients, w.errors} == std::tuple{0, 0, 0, 0, 0});
}

TEST_CASE("arguments of another number, type, shape, device or client are refused", "[pjrt][unit]") {
  auto const client = fake_client(2), other_client = fake_client(2);
  auto step       = client.compile(text, signature, 2);
  auto in         = Arguments{client, 2};
  auto results    = std::vector<std::vector<pjrt::Buffer>>{};
  auto const ints = std::array<std::int32_t, 6>{};
  auto const with = [&](pjrt::Buffer* first) {
    auto list  = in.list;
    list[1][0] = first;
    return said<BadArgument>([&] { step.run(list, results); });
  };
  auto const put  = [&](pjrt::Shape const& shape, int device) { return client.put(ints.data(), shape, device); };
  auto wrong_type = put(pjrt::shape_of<std::int32_t>({2, 3}), 1), wrong_shape = put(pjrt::shape_of<float>({6}), 1);
  auto elsewhere = put(matrix, 0), empty = pjrt::Buffer{}, stranger = other_client.put(ints.data(), matrix, 1);
  CHECK_THAT(with(&wrong_type), Contains("argument 0 on device 1 is tensor<2x3xi32>, and the program takes "
                                         "tensor<2x3xf32>."));
  CHECK_THAT(with(&wrong_shape), Contains("argument 0 on device 1 is tensor<6xf32>"));
  CHECK_THAT(with(&elsewhere), Contains("argument 0 for device 1 is on device 0"));
  CHECK_THAT(with(&stranger), Contains("argument 0 on device 1 belongs to another client"));
  CHECK_THAT(with(&empty), Contains("an empty buffer cannot be used as an argument"));
  CHECK_THAT(with(nullptr), Contains("argument 0 on device 1 is null"));
  CHECK_THAT(said<BadArgument>([&] { step.run({in.list[0]}, results); }),
             Contains("a program on 2 devices got arguments for 1"));
  CHECK_THAT(said<BadArgument>([&] { step.run({in.list[0], {in.list[1][0]}}, results); }),
             Contains("a program of 2 arguments got 1 on device 1"));
  CHECK_FALSE(in.state[0][0].donated());  // nothing has started

  CHECK_THAT(said<BadArgument>([&] { put(matrix, 2); }),
             Contains("this process has no device 2 of the PJRT plug-in the fake plug-in: it has 2 devices, 0 1."));
  CHECK_THAT(said<BadArgument>([&] { client.put(nullptr, matrix, 0); }), Contains("tensor<2x3xf32> has no data"));
  CHECK_THAT(said<BadArgument>([&] { put({static_cast<pjrt::ElementType>(14), {1}}, 0); }), Contains("number 14"));
  CHECK_THAT(said<BadArgument>([&] { elsewhere.get(results.data(), 23); }),
             Contains("a buffer of tensor<2x3xf32> has 24 bytes, and 23 are to be read"));
  CHECK_THAT(said<BadArgument>([] { pjrt::Dims{1, 1, 1, 1, 1, 1, 1, 1, 1}; }), Contains("at most 8 dimensions, got 9"));
}

TEST_CASE("work that fails is told by synchronize, which waits for it", "[pjrt][unit]") {
  {
    auto const client    = fake_client(2);
    auto step            = client.compile(text, signature, 2);
    auto in              = Arguments{client, 2};
    auto results         = std::vector<std::vector<pjrt::Buffer>>{};
    world().holds_events = true;
    step.run(in.list, results);
    step.run({{&results[0][0], &results[0][1]}, {&results[1][0], &results[1][1]}}, results);
    world().holds_events = false;
    CHECK(world().held.size() == 4);
    auto plugin_thread = release("a replica stopped");
    CHECK_THAT(said<pjrt::PluginError>([&] { client.synchronize(); }),
               Contains("work on devices of the PJRT plug-in the fake plug-in failed: a replica stopped (code 13"));
    plugin_thread.join();
    client.synchronize();  // it was told once

    auto refused = client.compile("// !refuse\n" + text, signature, 2);
    auto again   = Arguments{client, 2};
    CHECK_THAT(said<OutOfMemory>([&] { refused.run(again.list, results); }),
               Contains("starting a program of the PJRT plug-in the fake plug-in failed: Out of memory allocating 64 "
                        "bytes. (code 8, resource exhausted).\n") &&
                   Contains("Try: a smaller batch or model"));
    CHECK_FALSE(again.state[0][0].donated());  // the plug-in did not take it
  }
  auto const& w = world();
  CHECK(std::tuple{w.buffers, w.events, w.executables, w.clients, w.errors} == std::tuple{0, 0, 0, 0, 0});
}

TEST_CASE("at most eight runs of a client are waiting at any time", "[pjrt][unit]") {
  {
    auto const client    = fake_client(2);
    auto step            = client.compile(text, signature, 2);
    auto in              = Arguments{client, 2};
    world().most_held    = 0;
    world().holds_events = true;
    auto ended           = std::atomic{false};
    auto const held      = [] {
      auto const lock = std::lock_guard{world().mutex};
      return world().held.size();
    };
    auto plugin_thread = std::thread{[&] {  // ends runs only when eight of them are waiting
      while (!ended) {
        if (held() >= 16) release().join();
        std::this_thread::yield();
      }
    }};
    for (int i = 0; i < 100; ++i) step.run(in.list, in.state);
    ended = true;
    plugin_thread.join();
    release().join();
    world().holds_events = false;
    client.synchronize();
    CHECK(world().most_held == 16);
  }
  CHECK(world().events == 0);
}
