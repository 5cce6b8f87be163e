// SPDX-License-Identifier: Apache-2.0
#include "test/fuzz/data_cifar_target.hpp"
#include "test/fuzz/data_example_target.hpp"
#include "test/fuzz/data_idx_target.hpp"
#include "test/fuzz/data_npy_target.hpp"
#include "test/fuzz/data_tfrecord_target.hpp"
#include "test/fuzz/frame_target.hpp"
#include "test/fuzz/handshake_target.hpp"
#include "test/fuzz/hostlist_target.hpp"
#include "test/fuzz/manifest_target.hpp"
#include "test/fuzz/safetensors_target.hpp"
#include "test/fuzz/tf_config_target.hpp"

#include <chorale/core/random.hpp>

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

using Input = std::vector<std::byte>;

std::vector<Input> corpus(std::string const& name) {
  auto inputs = std::vector<Input>{};
  for (auto const& entry : std::filesystem::directory_iterator{"test/fuzz/corpus/" + name}) {
    auto file       = std::ifstream{entry.path(), std::ios::binary};
    auto const text = std::string{std::istreambuf_iterator<char>{file}, {}};
    auto const all  = std::as_bytes(Span<char const>{text});
    inputs.emplace_back(all.begin(), all.end());
  }
  return inputs;
}

/// The input with some bytes changed, taken out or put in.
Input changed(Input bytes, std::uint64_t seed) {
  auto const random = Random{seed, 1};
  for (std::uint64_t i = 0; i <= random.below(0, 4) && !bytes.empty(); ++i) {
    auto const at   = bytes.begin() + static_cast<std::ptrdiff_t>(random.below(3 * i + 1, bytes.size()));
    auto const byte = static_cast<std::byte>(random.below(3 * i + 2, 256));
    switch (random.below(3 * i + 3, 3)) {
      case 0: *at = byte; break;
      case 1: bytes.erase(at); break;
      default: bytes.insert(at, byte);
    }
  }
  return bytes;
}

template <class Target>
void replay(std::string const& name, Target target) {
  auto const inputs = corpus(name);
  REQUIRE(inputs.size() >= 20);                                            // else it is not where it should be
  target({});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(name, i);
    CHECK_NOTHROW(target(inputs[i]));
    for (std::uint64_t seed = 0; seed < 20; ++seed) CHECK_NOTHROW(target(changed(inputs[i], 100 * i + seed)));
  }
}

}  // namespace

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

TEST_CASE("what the TFRecord fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_tfrecord", fuzz_data_tfrecord);
}

TEST_CASE("what the Example fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_example", fuzz_data_example);
}

TEST_CASE("what the npy fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_npy", fuzz_data_npy);
}

TEST_CASE("what the CIFAR fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_cifar", fuzz_data_cifar);
}

TEST_CASE("what the IDX fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_idx", fuzz_data_idx);
}

TEST_CASE("what the manifest fuzzer has kept holds every property, and so do inputs near it", "[checkpoint][fuzz]") {
  replay("manifest", fuzz_manifest);
}

TEST_CASE("what the safetensors fuzzer has kept holds every property, and so do inputs near it",
          "[checkpoint][fuzz]") {
  replay("safetensors", fuzz_safetensors);
}

TEST_CASE("someone in the middle who only delivers is not noticed", "[transport][fuzz]") {
  auto const all = Input{std::byte{2}, std::byte{0}, std::byte{255}, std::byte{1}, std::byte{255},
                         std::byte{0}, std::byte{255}, std::byte{1}, std::byte{255}};
  CHECK_NOTHROW(fuzz_handshake(all));
}
