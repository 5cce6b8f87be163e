// SPDX-License-Identifier: Apache-2.0
//
// The programs of examples/gpu, each in a namespace, without their flags: they learn to tell drawn digits apart.
#include "examples/support/options.hpp"
#include "test/cuda/device.hpp"

#include <chorale/cluster/from_env.hpp>
#include <chorale/data/stages/to_cuda.hpp>
#include <chorale/device/cuda_copies.hpp>
#include <chorale/tensor/cuda/all.hpp>
#include <chorale/transport/nccl.hpp>
#include <chorale/transport/staged.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <exception>
#include <stdexcept>

#define main program
namespace in_float {
#include "examples/gpu/02_mirrored.cpp"
}
namespace in_bf16 {
#undef PRECISION
#define PRECISION chorale::bf16
#include "examples/gpu/02_mirrored.cpp"
}  // namespace in_bf16
namespace of_a_cluster {
#include "examples/gpu/04_multi_worker.cpp"
}
#undef PRECISION
#undef main

namespace example {

// In place of flags: one epoch of few digits. What fails is thrown on.
Options parse(int, char**, Options o) {
  o.epochs = 1;
  o.rows   = 256;
  return o;
}
int failed(std::exception const&) { throw; }

}  // namespace example

TEST_CASE("the examples for GPUs run, or say that there is none", "[examples][cuda]") {
  for (auto* const program : {in_float::program, in_bf16::program, of_a_cluster::program}) {
    if (Cuda::visible().empty()) CHECK_THROWS_WITH(program(0, nullptr), Catch::Contains("there is no device"));
    else CHECK(program(0, nullptr) == 0);
  }
}
