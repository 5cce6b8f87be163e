// SPDX-License-Identifier: Apache-2.0
#include <chorale/pjrt/device/pjrt.hpp>
#include <chorale/pjrt/device/topology.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

// What a plug-in of CHORALE_PJRT_PLUGIN does, one for CPUs; and what libtpu of TPU_LIBRARY_PATH compiles. Each test is
// skipped by name where its variable is not set.

using namespace chorale;
using Catch::Contains;

namespace {

/// A variable's value; empty, with a line that says which test is skipped, when it is not set.
std::string path_in(char const* variable, char const* test) {
  auto const* path = std::getenv(variable);
  if (path != nullptr && *path != '\0') return path;
  std::printf("SKIPPED: %s: %s names no plug-in\n", test, variable);
  return {};
}

template <class E, class Body> std::string thrown(Body const& body) {
  try {
    body();
  } catch (E const& error) { return error.what(); }
  return {};
}

/// All-reduce of a vector over all replicas, and the vector doubled in place.
std::string const sums  = R"(module @sums {
  func.func public @main(%a: tensor<1000xf32>, %b: tensor<1000xf32> {tf.aliasing_output = 1 : i32})
      -> (tensor<1000xf32>, tensor<1000xf32>) {
    %0 = "stablehlo.all_reduce"(%a) <{replica_groups = dense<> : tensor<0x0xi64>}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %z = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %z : tensor<f32>
    }) : (tensor<1000xf32>) -> tensor<1000xf32>
    %1 = stablehlo.add %b, %b : tensor<1000xf32>
    return %0, %1 : tensor<1000xf32>, tensor<1000xf32>
  }
})";
auto const vector_shape = pjrt::shape_of<float>({1000});

std::string one_line(std::string const& line) {
  return "module @m {\n  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n    " + line +
         "\n    return %0 : tensor<4xf32>\n  }\n}\n";
}

}  // namespace

TEST_CASE("devices of a plug-in are found and named", "[pjrt][plugin]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "devices of a plug-in are found and named");
  if (path.empty()) return;
  CHECK(Pjrt::missing().empty());
  auto const all = Pjrt::visible();
  REQUIRE(all.size() >= 1);
  CHECK(all[0].index() == 0);
  CHECK(all[0].cores().size() == 1);
  CHECK(all[0].client() == Pjrt::open(path).client());  // one client of a plug-in and its options

  auto const eight = Pjrt::open(path, {.devices = 8});
  CHECK(eight.cores() == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(eight.first(2).cores() == std::vector{0, 1});
  CHECK(eight.client() == Pjrt::open(path, {.devices = 8}).client());
  CHECK_FALSE(eight.client() == all[0].client());
  CHECK(eight.client().platform() == "cpu");
  CHECK(eight.client().devices()[7].id == 7);
  CHECK_THAT(thrown<BadArgument>([&] { eight.first(9); }), Contains("9 devices are asked for, of 8"));
  CHECK(std::holds_alternative<std::vector<std::int64_t>>(
      eight.client().plugin().attributes().at("stablehlo_current_version")));

  auto const block = eight.allocate(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 64 == 0);
  CHECK(std::all_of(block.data(), block.data() + 1000, [](std::byte b) { return b == std::byte{0}; }));
  eight.synchronize();
}

TEST_CASE("arrays of every element type and rank come back as they went", "[pjrt][plugin]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "arrays of every element type and rank come back as they went");
  if (path.empty()) return;
  auto const client = Pjrt::open(path, {.devices = 8}).client();
  auto const shapes = std::vector<pjrt::Dims>{{}, {7}, {2, 3}, {2, 3, 4}, {1, 5, 1, 2}, {2, 1, 3, 1, 2}, {0, 4}};
  for (int type = 1; type <= static_cast<int>(pjrt::ElementType::bf16); ++type)
    for (auto const& dims : shapes) {
      auto const shape = pjrt::Shape{static_cast<pjrt::ElementType>(type), dims};
      auto in          = std::vector<unsigned char>(shape.bytes());
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<unsigned char>(shape.type == pjrt::ElementType::pred ? i % 2 : 7 * i + 1);
      auto out          = std::vector<unsigned char>(in.size(), 0xee);
      auto const kept   = in;
      auto const buffer = client.put(in.data(), shape, 5);
      std::fill(in.begin(), in.end(), static_cast<unsigned char>(0));  // put() has copied
      buffer.get(out.data(), out.size());
      INFO(shape.text());
      CHECK(out == kept);
    }

  auto values = std::vector<float>(1 << 20);
  std::iota(values.begin(), values.end(), 0.f);
  auto copied      = pjrt::Event{};
  auto const large = client.put_later(values.data(), pjrt::shape_of<float>({1024, 1024}), 1, copied);
  copied.wait();
  CHECK(copied.ready());
  auto back = std::vector<float>(values.size());
  auto done = large.get_later(back.data(), back.size() * sizeof(float));
  done.wait();
  CHECK(back == values);
}

TEST_CASE("replicas add up in one module, with the same bits on each", "[pjrt][plugin]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "replicas add up in one module, with the same bits on each");
  if (path.empty()) return;
  auto const client = Pjrt::open(path, {.devices = 8}).client();
  for (int const n : {1, 2, 8}) {
    auto program = client.compile(sums, n);
    auto state   = std::vector<std::vector<pjrt::Buffer>>(static_cast<std::size_t>(n));  // [device]: sum, doubled
    auto inputs  = std::vector<pjrt::Buffer>{};
    auto wanted  = std::vector<float>(1000);
    for (int d = 0; d < n; ++d) {
      auto values = std::vector<float>(1000);
      for (int i = 0; i < 1000; ++i) values[static_cast<std::size_t>(i)] = std::sin(static_cast<float>(1000 * d + i));
      for (std::size_t i = 0; i < 1000; ++i) wanted[i] = d == 0 ? values[i] : wanted[i] + values[i];
      inputs.push_back(client.put(values.data(), vector_shape, d));
      auto& here = state[static_cast<std::size_t>(d)];
      here.emplace_back();
      here.push_back(client.put(values.data(), vector_shape, d));
    }
    auto arguments = std::vector<std::vector<pjrt::Buffer*>>{};
    for (std::size_t d = 0; d < state.size(); ++d) arguments.push_back({&inputs[d], &state[d][1]});
    for (int step = 0; step < 100; ++step) program.run(arguments, state);  // not waited for: each step is queued
    client.synchronize();
    for (std::size_t d = 0; d < state.size(); ++d) {
      auto sum = std::vector<float>(1000), doubled = sum, first = sum;
      state[d][0].get(sum.data(), 4000);
      state[d][1].get(doubled.data(), 4000);
      inputs[d].get(first.data(), 4000);
      CHECK(std::memcmp(sum.data(), wanted.data(), 4000) == 0);  // added in the order of ranks
      for (auto& x : first) x = std::ldexp(x, 100);
      CHECK(doubled == first);
    }
    CHECK(program.program().replicas() == n);
    CHECK(program.program().memory().aliased == 4000);
    CHECK(program.program().optimized().bytes.find("all-reduce") != std::string::npos);
  }
}

TEST_CASE("two threads run programs that add up over the same devices", "[pjrt][plugin]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "two threads run programs that add up over the same devices");
  if (path.empty()) return;
  auto const client = Pjrt::open(path, {.devices = 8}).client();
  auto last         = std::vector<float>(2);
  auto const train  = [&](std::size_t thread) {
    auto program   = client.compile(sums, 8);
    auto const one = std::vector<float>(1000, 1.f);
    auto inputs    = std::vector<pjrt::Buffer>{};
    auto state     = std::vector<std::vector<pjrt::Buffer>>(8);
    auto list      = std::vector<std::vector<pjrt::Buffer*>>{};
    for (int d = 0; d < 8; ++d) inputs.push_back(client.put(one.data(), vector_shape, d));
    for (std::size_t d = 0; d < 8; ++d) {
      state[d].emplace_back();
      state[d].push_back(client.put(one.data(), vector_shape, static_cast<int>(d)));
      list.push_back({&inputs[d], &state[d][1]});
    }
    for (int step = 0; step < 200; ++step) program.run(list, state);
    auto sum = std::vector<float>(1000);
    state[7][0].get(sum.data(), 4000);
    last[thread] = sum[999];
  };
  auto other = std::thread{[&] { train(1); }};
  train(0);
  other.join();
  CHECK(last == std::vector{8.f, 8.f});
}

TEST_CASE("a program may take nothing, or give nothing", "[pjrt][plugin]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "a program may take nothing, or give nothing");
  if (path.empty()) return;
  auto const client = Pjrt::open(path, {.devices = 8}).client();
  auto results      = std::vector<std::vector<pjrt::Buffer>>{};
  auto seven        = client.compile(R"(module @m {
    func.func public @main() -> tensor<i32> {
      %0 = stablehlo.constant dense<7> : tensor<i32>
      return %0 : tensor<i32>
    }
  })",
                                     2);
  seven.run({{}, {}}, results);
  auto number = 0;
  results[1][0].get(&number, sizeof number);
  CHECK(number == 7);
  auto nothing = client.compile("module @m {\n  func.func public @main(%a: tensor<i32>) {\n    return\n  }\n}\n", 1);
  nothing.run({{&results[0][0]}}, results);
  client.synchronize();
  CHECK(results.size() == 1);
  CHECK(results[0].empty());
}

TEST_CASE("a plug-in's errors have the line of the text", "[pjrt][plugin]") {
  auto const path = path_in("CHORALE_PJRT_PLUGIN", "a plug-in's errors have the line of the text");
  if (path.empty()) return;
  auto const client = Pjrt::open(path, {.devices = 8}).client();
  auto const wrong  = [&](std::string const& text, int replicas = 1) {
    return thrown<pjrt::CompileError>([&] { client.compile(text, replicas); });
  };
  CHECK_THAT(wrong(one_line("%0 = stablehlo.add %a %a : tensor<4xf32>")),
             Contains("line 3, column 26: expected ',', in `%0 = stablehlo.add %a %a : tensor<4xf32>`."));
  CHECK_THAT(wrong(one_line("%0 = stablehlo.frobnicate %a : tensor<4xf32>")),
             Contains("line 3, column 10: custom op 'stablehlo.frobnicate' is unknown"));
  CHECK_THAT(wrong("hello"), Contains("line 1, column 1: "));
  CHECK_THAT(wrong("module @m {\n  func.func public @other(%a: tensor<f32>) -> tensor<f32> {\n"
                   "    return %a : tensor<f32>\n  }\n}\n"),
             Contains("cannot compile the program"));
  auto groups = sums;
  groups.replace(groups.find("dense<> : tensor<0x0xi64>"), 25, "dense<[[0,1,2]]> : tensor<1x3xi64>");
  CHECK_THAT(wrong(groups, 2), Contains("replica groups should contain 2 replicas, but found 3"));
}

TEST_CASE("what a plug-in would take for something else is refused, and donation is told", "[pjrt][plugin]") {
  auto const name = "what a plug-in would take for something else is refused, and donation is told";
  auto const path = path_in("CHORALE_PJRT_PLUGIN", name);
  if (path.empty()) return;
  auto const client = Pjrt::open(path, {.devices = 8}).client();
  auto program      = client.compile(sums, 1, {3});
  auto const ones   = std::vector<float>(1000, 1.f);
  auto const put    = [&](pjrt::Shape const& shape, int device) { return client.put(ones.data(), shape, device); };
  auto a = put(vector_shape, 3), b = put(vector_shape, 3), ints = put(pjrt::shape_of<std::int32_t>({1000}), 3);
  auto flat = put(pjrt::shape_of<float>({10, 100}), 3), elsewhere = put(vector_shape, 0);
  auto results    = std::vector<std::vector<pjrt::Buffer>>{};
  auto const with = [&](pjrt::Buffer& first) {
    return thrown<BadArgument>([&] { program.run({{&first, &b}}, results); });
  };
  CHECK_THAT(with(ints),
             Contains("argument 0 on device 3 is tensor<1000xi32>, and the program takes tensor<1000xf32>."));
  CHECK_THAT(with(flat), Contains("argument 0 on device 3 is tensor<10x100xf32>"));
  CHECK_THAT(with(elsewhere), Contains("argument 0 for device 3 is on device 0"));
  CHECK_THAT(thrown<pjrt::PluginError>([&] { program.run({{&b, &b}}, results); }),
             Contains("donate"));  // the plug-in's own check: read and taken over at once
  CHECK_FALSE(b.donated());
  program.run({{&a, &b}}, results);
  CHECK(b.donated());
  CHECK_THAT(with(a),
             Contains("a buffer of tensor<1000xf32> on device 3 cannot be used as an argument: it was donated"));
  auto out = std::vector<float>(1000);
  results[0][1].get(out.data(), 4000);
  CHECK(out == std::vector<float>(1000, 2.f));
}

TEST_CASE("libtpu compiles a module for TPUs that are not there, and says that there are none", "[pjrt][tpu]") {
  auto const path =
      path_in("TPU_LIBRARY_PATH", "libtpu compiles a module for TPUs that are not there, and says that there are none");
  if (path.empty()) return;
  setenv("TPU_SKIP_MDS_QUERY", "1", 0);  // else it asks a cloud's server of metadata, for minutes
  auto const plugin   = pjrt::Plugin::open(path);
  auto const topology = pjrt::DeviceTopology{plugin, "v5e:2x4"};
  CHECK(topology.platform() == "tpu");
  CHECK(topology.devices().size() == 8);
  CHECK_THAT(topology.devices()[0].kind, Contains("TPU v5"));
  auto const program = topology.compile(sums, 8);
  CHECK(program.replicas() == 8);
  CHECK(program.code_bytes() > 0);
  CHECK(program.memory().aliased >= 4000);  // a device pads what it stores
  CHECK(program.results() == std::vector{vector_shape, vector_shape});
  CHECK(program.optimized().bytes.find("all-reduce") != std::string::npos);
  CHECK_THAT(thrown<pjrt::CompileError>([&] {
               pjrt::compile_for(plugin, "v5e:2x4", one_line("%0 = stablehlo.add %a %a : tensor<4xf32>"), 1);
             }),
             Contains("line 3, column 26: expected ','"));
  CHECK_THAT(thrown<pjrt::PluginError>([&] { pjrt::DeviceTopology{plugin, "v5e-8"}; }), Contains("is invalid"));
  CHECK_THAT(thrown<pjrt::PluginError>([&] { pjrt::Client{plugin}; }), Contains("Try: a machine with a TPU"));
}
