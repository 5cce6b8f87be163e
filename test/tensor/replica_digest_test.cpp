// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/replica_digest.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace replica_digest_test {

using namespace chorale;

namespace {

/// Values that do not repeat.
std::vector<float> values_of(std::size_t n) {
  auto values = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = 0.25F * static_cast<float>(i) - 7;
  return values;
}

float with_bit_flipped(float value, int bit) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ std::uint32_t{1} << bit);
}

std::array<float, ReplicaDigest::size> sums_of(std::vector<std::uint64_t> const& hashes) {
  auto sums = std::array<float, ReplicaDigest::size>{};
  for (auto const hash : hashes) {
    auto one = sums;
    ReplicaDigest::write(hash, one);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += one[i];
  }
  return sums;
}

}  // namespace

TEST_CASE("a flipped bit of any value changes the hash of all", "[tensor][digest]") {
  for (auto const n : {1U, 63U, 64U, 65U, 200U}) {  // shorter and longer than what is taken at once
    auto const values = values_of(n);
    auto unseen       = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (int bit = 0; bit < 32; ++bit) {
        auto other = values;
        other[i]   = with_bit_flipped(other[i], bit);
        unseen += hash_of(other) == hash_of(values) ? 1 : 0;
      }
    CHECK(unseen == 0);
    CHECK(hash_of(values) == hash_of(values_of(n)));
  }
}

TEST_CASE("values that have changed places change the hash", "[tensor][digest]") {
  auto const values = values_of(200);
  for (std::size_t i = 1; i < values.size(); ++i) {
    auto other = values;
    std::swap(other[i - 1], other[i]);
    CHECK(hash_of(other) != hash_of(values));
  }
}

TEST_CASE("sums of digests tell whether all hashes are equal", "[tensor][digest]") {
  CHECK(ReplicaDigest::all_equal(std::array<float, ReplicaDigest::size>{}));
  for (std::size_t replicas = 1; replicas <= 9; ++replicas) {
    auto hashes = std::vector<std::uint64_t>(replicas, hash_of(values_of(100)));
    CHECK(ReplicaDigest::all_equal(sums_of(hashes)));
    if (replicas == 1) continue;
    hashes.back() = hash_of(values_of(101));
    CHECK_FALSE(ReplicaDigest::all_equal(sums_of(hashes)));
  }
}

}  // namespace replica_digest_test
