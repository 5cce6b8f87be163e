// SPDX-License-Identifier: Apache-2.0
#include <chorale/device/cpu.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

using namespace chorale;

TEST_CASE("split deals out every core exactly once", "[device]") {
  auto const all = Cpu{}.cores();
  for (int n = 1; n <= static_cast<int>(all.size()); ++n) {
    auto seen = std::multiset<int>{};
    for (auto const& device : Cpu::split(n)) seen.insert(device.cores().begin(), device.cores().end());
    CHECK(seen == std::multiset<int>(all.begin(), all.end()));
  }
}

TEST_CASE("a number of devices that the cores do not allow is refused with both numbers", "[device]") {
  auto const cores = static_cast<int>(Cpu{}.cores().size());
  for (int const n : {-1, 0, cores + 1}) {
    CHECK_THROWS_AS(Cpu::split(n), BadArgument);
    CHECK_THROWS_WITH(Cpu::split(n), Catch::Contains("cannot split " + std::to_string(cores) + " cores into " +
                                                     std::to_string(n) + " devices"));
  }
}

TEST_CASE("a core that does not exist is refused", "[device]") {
  CHECK_THROWS_WITH(Cpu{std::vector<int>{100'000}}, Catch::Contains("core 100000 is not among the"));
  CHECK_THROWS_AS(Cpu{std::vector<int>{}}, BadArgument);
}

TEST_CASE("logical devices may outnumber the cores and compute on one thread each", "[device]") {
  auto const devices = Cpu::logical(7);
  REQUIRE(devices.size() == 7);
  for (auto const& device : devices) CHECK(device.threads() == 1);
}

TEST_CASE("a block is aligned and zero", "[device]") {
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{100}, std::size_t{5} << 20}) {
    auto const block = Cpu{}.allocate(bytes);
    CHECK(block.size() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 64 == 0);
    CHECK(std::all_of(block.data(), block.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("memory that the machine does not have is an error, not an end", "[device]") {
  CHECK_THROWS_AS(Cpu{}.allocate(std::size_t{1} << 60), OutOfMemory);
}

TEST_CASE("a scope moves the thread to the device's cores and back", "[device]") {
  auto const before = Cpu{}.cores();
  {
    auto const one   = Cpu{std::vector<int>{before.front()}};
    auto const scope = Cpu::Scope{one};
    CHECK(Cpu{}.cores() == std::vector<int>{before.front()});
    CHECK(omp_get_max_threads() == 1);
  }
  CHECK(Cpu{}.cores() == before);
}
