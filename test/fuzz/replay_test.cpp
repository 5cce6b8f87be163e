// SPDX-License-Identifier: Apache-2.0
#include "test/fuzz/replay.hpp"
#include "test/fuzz/frame_target.hpp"
#include "test/fuzz/handshake_target.hpp"
#include "test/fuzz/hostlist_target.hpp"
#include "test/fuzz/hosts_lines_target.hpp"
#include "test/fuzz/manifest_target.hpp"
#include "test/fuzz/safetensors_target.hpp"
#include "test/fuzz/tf_config_target.hpp"
#include "test/fuzz/weights_index_target.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;

TEST_CASE("changed inputs find lengths, numbers and signs that are not checked", "[fuzz]") {
  auto const inputs = std::vector<Input>{input_of("\4ABCD123abcdefgh"), input_of("\2ABDE5678")};
  auto const finds  = [&](auto const& target) {
    try {
      mutate(inputs, 1, 10'000, bounded(target));
    } catch (std::logic_error const& why) { return std::string{why.what()}; }
    return std::string{};
  };
  auto const text = [](ConstBytes in) { return std::string{reinterpret_cast<char const*>(in.data()), in.size()}; };
  CHECK(finds([](ConstBytes) {}).empty());
  CHECK_THAT(finds([](ConstBytes in) { must(!in.empty(), "empty"); }), Catch::Equals("no bytes: empty: $''"));
  CHECK_THAT(finds([](ConstBytes in) { must(in.empty(), "is"); }), Catch::StartsWith("input 0: is: $'\\x04\\x41"));
  CHECK_THAT(finds([](ConstBytes in) { must(in.size() < 10 || in[9] != std::byte{0xFF}, "a bit"); }),
             Catch::StartsWith("seed 1, change "));
  CHECK_THAT(finds([](ConstBytes in) {  // as a reader that trusts a count
               auto count = std::uint32_t{0};
               if (in.size() >= 5) std::memcpy(&count, in.data() + 1, 4);
               std::vector<std::byte>{}.reserve(std::min(count, 1U << 30));
             }),
             Catch::Contains(" bytes are held at once"));
  for (auto const* part : {"-1", "9223372036854775807", "1e999", "ABCDABCD", "ABD123abc"})
    CHECK_FALSE(finds([&](ConstBytes in) { must(text(in).find(part) == std::string::npos, part); }).empty());
  for (auto const size : {std::size_t{1}, std::size_t{60}})
    CHECK_FALSE(finds([&](ConstBytes in) { must(in.size() != size, "size"); }).empty());
  CHECK((Mutation{1, 5}.of(inputs) == Mutation{1, 5}.of(inputs)));
  auto different = std::set<Input>{};
  for (std::uint64_t i = 0; i < 1000; ++i) different.insert(Mutation{7, i}.of(inputs));
  CHECK(different.size() > 700);
}

TEST_CASE("what the frame fuzzer has kept holds every property, and so do inputs near it", "[transport][fuzz]") {
  replay("frame", fuzz_frame);
}

TEST_CASE("what the handshake fuzzer has kept holds every property, and so do inputs near it", "[transport][fuzz]") {
  replay("handshake", fuzz_handshake);
}

TEST_CASE("what the TF_CONFIG fuzzer has kept holds every property, and so do inputs near it", "[cluster][fuzz]") {
  replay("tf_config", fuzz_tf_config);
}

TEST_CASE("what the host list fuzzer has kept holds every property, and so do inputs near it", "[cluster][fuzz]") {
  replay("hostlist", fuzz_hostlist);
}

TEST_CASE("what the hosts file fuzzer has kept holds every property, and so do inputs near it", "[cluster][fuzz]") {
  replay("hosts_lines", fuzz_hosts_lines);
}

TEST_CASE("what the weights index fuzzer has kept holds every property, and so do inputs near it",
          "[checkpoint][fuzz]") {
  replay("weights_index", fuzz_weights_index);
}

TEST_CASE("what the manifest fuzzer has kept holds every property, and so do inputs near it", "[checkpoint][fuzz]") {
  replay("manifest", fuzz_manifest);
}

TEST_CASE("what the safetensors fuzzer has kept holds every property, and so do inputs near it", "[checkpoint][fuzz]") {
  replay("safetensors", fuzz_safetensors);
}

TEST_CASE("someone in the middle who only delivers is not noticed", "[transport][fuzz]") {
  auto const all = Input{std::byte{2}, std::byte{0},   std::byte{255}, std::byte{1},  std::byte{255},
                         std::byte{0}, std::byte{255}, std::byte{1},   std::byte{255}};
  CHECK_NOTHROW(fuzz_handshake(all));
}
