// SPDX-License-Identifier: Apache-2.0
//
// The same all-reduce by Gloo over loopback TCP, where it is installed.
#pragma once

#ifdef CHORALE_HAVE_GLOO

#include "ranks.hpp"

#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

namespace bench {

/// The names of its algorithms; `allreduce` is the function that PyTorch calls, the others are classes.
inline std::vector<std::string> const gloo_algorithms = {"allreduce", "ring", "ring_chunked", "halving_doubling",
                                                         "bcube"};

inline Times gloo_rank(std::string const& algorithm, std::string const& folder, int rank, int ranks, std::size_t n) {
  auto device  = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr{"127.0.0.1"});
  auto store   = gloo::rendezvous::FileStore{folder};
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  auto x = std::vector<float>(n);

  if (algorithm == "allreduce") {
    auto options = gloo::AllreduceOptions{context};
    options.setOutput(x.data(), n);
    options.setReduceFunction(
        [](void* out, void const* a, void const* b, std::size_t count) { gloo::sum<float>(out, a, b, count); });
    return times_of(rank, ranks, x, [&] { gloo::allreduce(options); });
  }
  auto const pointers = std::vector<float*>{x.data()};
  auto const count    = static_cast<int>(n);
  auto one            = std::unique_ptr<gloo::Algorithm>{};
  if (algorithm == "ring") one = std::make_unique<gloo::AllreduceRing<float>>(context, pointers, count);
  if (algorithm == "ring_chunked") one = std::make_unique<gloo::AllreduceRingChunked<float>>(context, pointers, count);
  if (algorithm == "halving_doubling")
    one = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context, pointers, count);
  if (algorithm == "bcube") one = std::make_unique<gloo::AllreduceBcube<float>>(context, pointers, count);
  return times_of(rank, ranks, x, [&] { one->run(); });
}

/// Where its ranks find each other's addresses.
struct GlooFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("chorale-gloo-" + std::to_string(getpid()));

  GlooFolder() { std::filesystem::create_directory(path); }
  ~GlooFolder() {
    auto ignored = std::error_code{};
    std::filesystem::remove_all(path, ignored);
  }
};

inline double gloo_reduce(std::string const& algorithm, int ranks, std::size_t bytes) {
  auto const folder = GlooFolder{};
  return on_processes(ranks, bytes, Cores::any,
                      [&](int rank) { return gloo_rank(algorithm, folder.path, rank, ranks, bytes / sizeof(float)); });
}

}  // namespace bench

#endif
