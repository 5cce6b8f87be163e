// SPDX-License-Identifier: Apache-2.0
#include "test/fuzz/data_cache_target.hpp"
#include "test/fuzz/data_cifar_target.hpp"
#include "test/fuzz/data_csv_target.hpp"
#include "test/fuzz/data_example_target.hpp"
#include "test/fuzz/data_idx_target.hpp"
#include "test/fuzz/data_npy_target.hpp"
#include "test/fuzz/data_npz_target.hpp"
#include "test/fuzz/data_text_target.hpp"
#include "test/fuzz/data_tfrecord_target.hpp"
#include "test/fuzz/data_tokenizer_target.hpp"
#include "test/fuzz/replay.hpp"

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::test;

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

TEST_CASE("what the CSV fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_csv", fuzz_data_csv);
}

TEST_CASE("what the npz fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_npz", fuzz_data_npz);
}

TEST_CASE("what the text fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_text", fuzz_data_text);
}

TEST_CASE("what the tokenizer fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_tokenizer", fuzz_data_tokenizer);
}

TEST_CASE("what the cache fuzzer has kept holds every property, and so do inputs near it", "[data][fuzz]") {
  replay("data_cache", fuzz_data_cache);
}
