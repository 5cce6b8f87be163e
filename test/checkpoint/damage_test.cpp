// SPDX-License-Identifier: Apache-2.0
#include "test/checkpoint/folder.hpp"
#include "test/support/processes.hpp"

#include <chorale/checkpoint/manager.hpp>
#include <chorale/checkpoint/reader.hpp>
#include <chorale/core/random.hpp>

#include <catch2/catch.hpp>

#include <sys/resource.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

using namespace chorale;
using namespace chorale::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t slack = 10;  // the sanitizer's own memory
#else
constexpr std::size_t slack = 1;
#endif

constexpr auto files = {"variables.safetensors", "optimizer.safetensors", "state.safetensors", "manifest.json"};

/// A folder with the checkpoints 700 and 812.
struct Two {
  OwnFolder folder;
  Logged logged{folder.run()};

  Two() {
    auto checkpoints = Checkpoints{logged.options};
    checkpoints.save(Training{700}.state);
    checkpoints.save(Training{812}.state);
  }

  std::filesystem::path newest() const { return folder.run() / "ckpt-000812"; }

  /// Is 700 used, with one line that begins with `said` and says so? And is the newest refused under OnDamage::stop?
  void check_falls_back(std::string const& said) {
    logged.lines.clear();
    auto const found = newest_checkpoint(logged.options);
    REQUIRE(found);
    CHECK(is_whole(*found));
    CHECK(found->manifest().step == 700);
    REQUIRE(logged.lines.size() == 1);
    CHECK_THAT(logged.lines[0], StartsWith((newest() / said).string()) && Contains("Passed over: step 700 is used."));
    auto strict      = logged.options;
    strict.on_damage = OnDamage::stop;
    CHECK_THROWS_AS(newest_checkpoint(strict), NoValidCheckpoint);
  }
};

}  // namespace

TEST_CASE("when the newest checkpoint is torn the one before it is used, and the file and byte are said",
          "[checkpoint][faults]") {
  auto two = Two{};
  for (std::string const name : files) {
    auto const path  = two.newest() / name;
    auto const whole = get(path);
    for (auto const size : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
      CAPTURE(name, size);
      put(path, whole.substr(0, size));
      two.check_falls_back(name + ": byte " + (name == "manifest.json" ? "0: " : std::to_string(size) + ": it has "));
    }
    put(path, whole + '\0');
    two.check_falls_back(name + ": byte ");
    put(path, whole);
    CHECK(newest_checkpoint(two.logged.options)->manifest().step == 812);
  }
}

TEST_CASE("one bit that flips anywhere is found, in its block", "[checkpoint][faults]") {
  auto two = Two{};
  for (std::string const name : files) {
    auto const path  = two.newest() / name;
    auto const whole = get(path);
    for (std::uint64_t k = 0; k < 40; ++k) {
      auto const at    = k == 0 ? 0 : k == 1 ? whole.size() - 1 : Random{3, 0}.below(k, whole.size());
      auto const block = at / 4096 * 4096;
      auto bytes       = whole;
      bytes[at]        = static_cast<char>(bytes[at] ^ 1 << k % 8);
      put(path, bytes);
      CAPTURE(name, at);
      two.check_falls_back(name + ": byte " + (name == "manifest.json" ? "" : std::to_string(block) + ": the "));
    }
    put(path, whole);
  }
}

TEST_CASE("a file that is missing, or is no file, is damage", "[checkpoint][faults]") {
  auto two = Two{};
  for (std::string const name : files) {
    auto const path  = two.newest() / name;
    auto const whole = get(path);
    CAPTURE(name);
    std::filesystem::remove(path);
    two.check_falls_back(name);
    std::filesystem::create_directory(path);
    two.check_falls_back(name);
    std::filesystem::remove(path);
    put(two.folder.path() / "elsewhere", whole);
    std::filesystem::create_symlink(two.folder.path() / "elsewhere", path);  // the right bytes, but not there
    two.check_falls_back(name);
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    two.check_falls_back(name);
    std::filesystem::remove(path);
    put(path, whole);
  }
  CHECK(newest_checkpoint(two.logged.options)->manifest().step == 812);
}

TEST_CASE("a checkpoint that is not what its name says is passed over", "[checkpoint][faults]") {
  auto two       = Two{};
  auto const run = two.folder.run();
  SECTION("renamed to a later step") {
    std::filesystem::rename(run / "ckpt-000812", run / "ckpt-000813");
    auto const found = newest_checkpoint(two.logged.options);
    CHECK(found->manifest().step == 700);
    CHECK_THAT(two.logged.all(), Contains("ckpt-000813: its manifest is of step 812"));
    CHECK(is_whole(Checkpoint::read(run / "ckpt-000813")));  // by itself it is good
  }
  SECTION("a link to another folder") {
    std::filesystem::rename(run / "ckpt-000812", two.folder.path() / "moved");
    std::filesystem::create_symlink(two.folder.path() / "moved", run / "ckpt-000812");
    CHECK(newest_checkpoint(two.logged.options)->manifest().step == 700);
    CHECK_THAT(two.logged.all(), Contains("run/ckpt-000812: cannot be opened as a folder: "));
  }
  SECTION("a file") {
    put(run / "ckpt-000900", "x");
    CHECK(newest_checkpoint(two.logged.options)->manifest().step == 812);
  }
  SECTION("files of two checkpoints mixed") {
    put(two.newest() / "optimizer.safetensors", get(run / "ckpt-000700" / "optimizer.safetensors"));
    two.check_falls_back("optimizer.safetensors: byte 0: the ");
  }
}

TEST_CASE("checkpoints of which none can be used are an error, not a start from nothing", "[checkpoint][faults]") {
  auto two = Two{};
  for (auto const* name : {"ckpt-000700", "ckpt-000812"})
    std::filesystem::resize_file(two.folder.run() / name / "state.safetensors", 3);
  CHECK_THROWS_WITH(newest_checkpoint(two.logged.options), Contains("none of 2 checkpoints can be used") &&
                                                               Contains("Try: ") &&
                                                               Contains("ckpt-000812/state.safetensors: byte 3") &&
                                                               Contains("ckpt-000700/state.safetensors: byte 3"));
  CHECK(two.logged.lines.empty());
  auto const saved = Checkpoints{two.logged.options}.save(Training{710}.state);  // and the next one is good again
  CHECK(saved == Saved::yes);
  CHECK(newest_checkpoint(two.logged.options)->manifest().step == 710);
}

TEST_CASE("a folder that is not there, or has only strangers, has no checkpoint", "[checkpoint][unit]") {
  auto const folder = OwnFolder{};
  auto logged       = Logged{folder.run()};
  CHECK_FALSE(newest_checkpoint(logged.options));
  std::filesystem::create_directories(folder.run() / "ckpt-000812.tmp.job");
  std::filesystem::create_directories(folder.run() / "checkpoints");
  put(folder.run() / "ckpt-812", "x");
  CHECK_FALSE(newest_checkpoint(logged.options));
  CHECK(checkpoint_steps(folder.run()).empty());
  CHECK(logged.lines.empty());
  logged.options.folder = folder.run() / "ckpt-812";
  CHECK_THROWS_AS(newest_checkpoint(logged.options), BadFile);
}

TEST_CASE("a reader finds a whole checkpoint while another process saves and tidies", "[checkpoint][faults]") {
  auto const folder = OwnFolder{};
  auto logged       = Logged{folder.run()};
  Checkpoints{logged.options}.save(Training{1}.state);
  auto writer = Processes{1, [&](int, Voice) {
                            auto checkpoints = Checkpoints{CheckpointOptions{.folder = folder.run(), .block = 4096}};
                            for (std::uint64_t step = 2;; ++step) checkpoints.save(Training{step}.state);
                          }};
  auto newest = std::uint64_t{0};
  while (newest < 15) {
    auto const found = newest_checkpoint(logged.options);
    REQUIRE(found);
    if (!is_whole(*found) || found->manifest().step < newest) FAIL("step " << found->manifest().step);
    newest = found->manifest().step;
  }
}

TEST_CASE("a state is copied into place as a whole, or not at all", "[checkpoint][unit]") {
  auto two        = Two{};
  auto const last = newest_checkpoint(two.logged.options);
  auto kernel = std::vector<float>(3000), bias = std::vector<float>(10);
  auto slots =
      std::vector<TensorSlot>{{"dense/bias", Dtype::f32, {10}, std::as_writable_bytes(Span<float>{bias})},
                              {"dense/kernel", Dtype::f32, {300, 10}, std::as_writable_bytes(Span<float>{kernel})},
                              {"empty", Dtype::f32, {0, 3}, {}}};
  auto const expected = Training{812};
  last->copy(Section::variables, slots);
  CHECK(kernel == expected.values.at("dense/kernel"));
  CHECK(bias == expected.values.at("dense/bias"));

  kernel.assign(3000, 1);
  bias.assign(10, 1);
  slots[1].shape = {10, 300};
  slots[2].name  = "dense/more";
  CHECK(last->differences(Section::variables, slots) ==
        std::vector<std::string>{"\"dense/kernel\": F32[300,10], but F32[10,300] is needed",
                                 "\"dense/more\": not in the checkpoint, but F32[0,3] is needed",
                                 "\"empty\": F32[0,3], but nothing is called so"});
  CHECK_THROWS_WITH(last->copy(Section::variables, slots),
                    Contains("ckpt-000812: variables: 3 tensors are not as this model needs them.") &&
                        Contains("F32[10,300] is needed"));
  CHECK(bias == std::vector<float>(10, 1));
  slots[1].shape = {300, 10};
  slots[2].name  = "empty";
  slots[1].bytes = slots[1].bytes.first(100);
  CHECK_THROWS_AS(last->copy(Section::variables, slots), BadArgument);
  CHECK(bias == std::vector<float>(10, 1));
}

TEST_CASE("a file of a million tensors is read in memory near its own size, and one more is refused",
          "[checkpoint][unit]") {
  auto const folder = OwnFolder{};
  auto header       = std::string{"{"};
  auto const add    = [&](std::size_t i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  };
  auto const write = [&](std::size_t n, std::string const& name) {
    auto const text = header + "}";
    auto length     = std::uint64_t{text.size()};
    put(folder.path() / name, std::string{reinterpret_cast<char const*>(&length), 8} + text + std::string(n, '\0'));
  };
  for (std::size_t i = 0; i < 1'000'000; ++i) add(i);
  write(1'000'000, "most");
  add(1'000'000);
  write(1'000'001, "more");
  auto process = Processes{1, [&](int, Voice voice) {
                             auto before = rusage{}, after = before;
                             ::getrusage(RUSAGE_SELF, &before);
                             auto const file    = SafetensorsFile::read(folder.path() / "most");
                             auto const tensors = file.tensors().size();
                             ::getrusage(RUSAGE_SELF, &after);
                             voice.say(std::to_string(tensors));
                             voice.say(std::to_string(after.ru_maxrss - before.ru_maxrss));  // KiB
                             SafetensorsFile::read(folder.path() / "more");
                           }};
  CHECK(process.line(0) == "1000000");
  auto const kib  = std::stoul(process.line(0));
  auto const size = std::filesystem::file_size(folder.path() / "most");
  CHECK(kib * 1024 < 5 * size * slack);  // the mapping of the file is one of the five
  CHECK_THAT(process.line(0), Contains("there are more than 1000000 tensors"));
}
