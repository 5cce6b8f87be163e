// SPDX-License-Identifier: Apache-2.0
#include "test/pjrt/fake_programs.hpp"

#include <chorale/pjrt/device/pjrt.hpp>
#include <chorale/pjrt/device/topology.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

using namespace chorale;
using namespace chorale::test::fake;
using Catch::Contains;

TEST_CASE("a plug-in that cannot be used is refused with one sentence", "[pjrt][unit]") {
  auto const open   = [](std::string const& path) { return said<BadArgument>([&] { pjrt::Plugin::open(path); }); };
  auto const linked = [](Table const& table) {
    return said<BadArgument>([&] { pjrt::Plugin::linked(&table.head, "an odd one"); });
  };
  CHECK_THAT(open("/no/plugin.so"), Contains("there is no file \"/no/plugin.so\" to open as a PJRT plug-in."));
  CHECK_THAT(open("libm.so.6"), Contains("libm.so.6 is no PJRT plug-in: it has no function GetPjrtApi."));
  CHECK_THAT(open("/proc/self/cmdline"), Contains("cannot open the PJRT plug-in /proc/self/cmdline: "));

  auto other       = Table{};
  other.head.major = 1;
  CHECK_THAT(linked(other),
             Contains("an odd one: its interface has version 1.106, and this library calls version 0.60"));
  CHECK_THAT(linked(Table{59}), Contains("its interface has version 0.59, and this library calls version 0.60"));
  auto small             = Table{};
  small.head.struct_size = 32;
  CHECK_THAT(linked(small), Contains("its table of functions has 32 bytes, and needs 40 for the version alone"));
  auto shorter             = Table{};
  shorter.head.struct_size = 40 + 58 * 8;  // up to the function before Buffer_Destroy
  CHECK_THAT(linked(shorter), Contains("its table of 504 bytes has no PJRT_Buffer_Destroy"));
  auto without = Table{};
  without.clear<pjrt::api::EventAwait>();
  CHECK_THAT(linked(without), Contains("has no PJRT_Event_Await"));
  CHECK_THAT(said<BadArgument>([] { pjrt::Plugin::linked(nullptr, "nothing"); }),
             Contains("cannot use the PJRT plug-in nothing: its GetPjrtApi returned nothing."));

  static auto no_stats = Table{60};  // the oldest version that can be used
  no_stats.clear<pjrt::api::MemoryStats>();
  auto const old = pjrt::Plugin::linked(&no_stats.head, "an old one");
  CHECK(old.minor_version() == 60);
  auto const program = pjrt::compile_for(old, "fake:2x2", text, 2);
  CHECK_THAT(said<Error>([&] { program.memory(); }),
             Contains("an old one of version 0.60 has no PJRT_Executable_GetCompiledMemoryStats."));
}

TEST_CASE("a plug-in tells its attributes, and is the same one when it is opened twice", "[pjrt][unit]") {
  auto const opened = plugin();
  CHECK(opened == plugin());
  CHECK(std::get<std::vector<std::int64_t>>(opened.attributes().at("stablehlo_current_version")) ==
        std::vector<std::int64_t>{1, 16, 1});
  CHECK(std::get<std::string>(opened.attributes().at("made_by")) == "a test");
}

TEST_CASE("the environment names the plug-in, and a device says why there is none", "[pjrt][unit]") {
  auto const kept = [](char const* name) {
    auto const* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>{value} : std::nullopt;
  };
  auto const own = kept("CHORALE_PJRT_PLUGIN"), tpu = kept("TPU_LIBRARY_PATH");
  unsetenv("CHORALE_PJRT_PLUGIN");
  unsetenv("TPU_LIBRARY_PATH");
  CHECK_THAT(said<BadArgument>([] { pjrt::Plugin::path_from_environment(); }),
             Contains("neither CHORALE_PJRT_PLUGIN nor TPU_LIBRARY_PATH is set."));
  CHECK(Pjrt::visible().empty());
  CHECK_THAT(Pjrt::missing(), Contains("no PJRT plug-in is named"));
  setenv("TPU_LIBRARY_PATH", "/no/libtpu.so", 1);
  CHECK(pjrt::Plugin::path_from_environment() == "/no/libtpu.so");
  CHECK_THAT(Pjrt::missing(), Contains("there is no file \"/no/libtpu.so\""));
  setenv("CHORALE_PJRT_PLUGIN", "/no/own.so", 1);
  CHECK(pjrt::Plugin::path_from_environment() == "/no/own.so");
  for (auto const& [name, value] : {std::pair{"CHORALE_PJRT_PLUGIN", own}, {"TPU_LIBRARY_PATH", tpu}})
    if (value) setenv(name, value->c_str(), 1);
    else unsetenv(name);
}

TEST_CASE("a device is some of a plug-in's devices, made or there already", "[pjrt][unit]") {
  static auto const table = Table{};  // its clients are never freed
  auto const plugin       = pjrt::Plugin::linked(&table.head, "a plug-in for CPUs");
  auto const two          = Pjrt::open(plugin, {.devices = 2});
  CHECK(two.cores() == std::vector{0, 1});
  CHECK(two.client().devices().size() == 2);
  CHECK(two.first(1).cores() == std::vector{0});
  CHECK(two.client() == Pjrt::open(plugin, {.devices = 2}).client());
  CHECK_FALSE(two.client() == Pjrt::open(plugin).client());
  CHECK_THAT(said<BadArgument>([&] { two.first(3); }), Contains("3 devices are asked for, of 2 of the PJRT plug-in"));
  CHECK_THAT(said<BadArgument>([&] { Pjrt::open(plugin, {.devices = 2, .others = {{"cpu_device_count", 2}}}); }),
             Contains("given twice"));

  static auto const tpu_table = Table{};
  auto const tpus             = pjrt::Plugin::linked(&tpu_table.head, "a plug-in for TPUs");
  world().refuses_count       = true;
  auto const three            = Pjrt::open(tpus, {.devices = 3});
  CHECK(three.cores() == std::vector{0, 1, 2});
  CHECK(three.client().devices().size() == 4);
  CHECK(three.client() == Pjrt::open(tpus).client());  // a TPU has one client
  CHECK_THAT(said<BadArgument>([&] { Pjrt::open(tpus, {.devices = 5}); }), Contains("5 devices are asked for, of 4"));
  world().refuses_count = false;
  world().clients       = 0;
  CHECK(world().errors == 0);
}

TEST_CASE("options of a client keep their types, and those that abort a process are refused", "[pjrt][unit]") {
  auto const client = pjrt::Client{plugin(),
                                   {{"cpu_device_count", 3},
                                    {"allocator", "bfc"},
                                    {"memory_fraction", 0.5f},
                                    {"preallocate", false},
                                    {"visible_devices", std::vector<std::int64_t>{2, 3}}}};
  auto const& seen  = world().options;
  CHECK(std::get<std::int64_t>(seen.at("cpu_device_count")) == 3);
  CHECK(std::get<std::string>(seen.at("allocator")) == "bfc");
  CHECK(std::get<float>(seen.at("memory_fraction")) == 0.5f);
  CHECK_FALSE(std::get<bool>(seen.at("preallocate")));
  CHECK(std::get<std::vector<std::int64_t>>(seen.at("visible_devices")) == std::vector<std::int64_t>{2, 3});
  CHECK(client.devices().size() == 3);
  CHECK(client.devices()[2].id == 2);
  CHECK(client.devices()[2].description == "fake:2");
  CHECK(client.platform() == "fake");
  CHECK(client.process() == 0);

  auto const with = [](pjrt::Option const& option) {
    return said<BadArgument>([&] { pjrt::Client{plugin(), {option}}; });
  };
  CHECK_THAT(with({"cpu_device_count", "8"}), Contains("cpu_device_count of a PJRT client is an integer"));
  CHECK_THAT(with({"cpu_device_count", 0}), Contains("is from 1 to 1024, got 0"));
  CHECK_THAT(with({"cpu_device_count", 1.f}), Contains("is an integer"));
  CHECK_THAT(with({"", 1}), Contains("has no name"));
}

TEST_CASE("a plug-in without a device says what to try", "[pjrt][unit]") {
  auto const failing = [](std::string const& words) {
    world().client_fails = words;
    auto const all       = said<pjrt::PluginError>([] { fake_client(1); });
    world().client_fails.clear();
    return all;
  };
  CHECK_THAT(failing("TPU initialization failed: No jellyfish device found."),
             Contains("PJRT_Client_Create of the PJRT plug-in the fake plug-in failed: TPU initialization failed: No "
                      "jellyfish device found. (code 5, not found).\n") &&
                 Contains("Try: a machine with a TPU"));
  CHECK_THAT(failing("No visible GPU devices."), Contains("Try: a machine with an NVIDIA GPU"));
  CHECK(world().errors == 0);
}

TEST_CASE("clients of several processes find one another through a store", "[pjrt][unit]") {
  auto texts = std::map<std::string, std::string>{};
  auto waits = std::chrono::milliseconds{};
  auto store = pjrt::KeyValueStore{
      .put = [&](std::string_view key, std::string_view value) { texts.emplace(key, value); },
      .get = [&](std::string_view key, std::chrono::milliseconds timeout) -> std::optional<std::string> {
        waits = timeout;
        return texts.at(std::string{key});
      },
      .try_get = [&](std::string_view key) -> std::optional<std::string> {
        auto const found = texts.find(std::string{key});
        return found == texts.end() ? std::nullopt : std::optional{found->second};
      }};
  {
    auto const client = pjrt::Client{plugin(), {}, store};
    CHECK(texts.at("topology/0") == std::string("4 \0 devices", 11));
    CHECK(waits == std::chrono::milliseconds{250});
    REQUIRE(world().from_store.size() == 2);
    CHECK(world().from_store[0] == std::string("4 \0 devices", 11));
    CHECK(world().from_store[1] == "5 no value for absent");
  }
  store.get = [](auto, auto) -> std::optional<std::string> { throw std::runtime_error{"the server of keys is gone"}; };
  CHECK_THAT(said<pjrt::PluginError>([&] { pjrt::Client{plugin(), {}, store}; }),
             Contains("the server of keys is gone (code 13, internal)"));
  CHECK(world().errors == 0);
  CHECK(world().clients == 0);
}

TEST_CASE("a program is compiled for devices that are not there", "[pjrt][unit]") {
  {
    auto const topology = pjrt::DeviceTopology{plugin(), "fake:2x2"};
    CHECK(topology.devices().size() == 4);
    CHECK(topology.platform() == "fake");
    auto const program = topology.compile(text, 4);
    CHECK(program.replicas() == 4);
    CHECK(program.results() == signature.results);
    CHECK_THAT(said<BadArgument>([&] { topology.compile(text, 5); }),
               Contains("5 replicas do not fit on the 4 devices"));
  }
  CHECK_THAT(said<pjrt::PluginError>([] { pjrt::compile_for(plugin(), "v9:1", text, 1); }),
             Contains("the topology \"v9:1\" of the PJRT plug-in the fake plug-in failed: Your topology name v9:1 is"));
  CHECK(world().topologies == 0);
  CHECK(world().executables == 0);
}
