// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/pjrt/fake_plugin.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chorale::test::fake {

/// What body throws; empty when it throws nothing.
template <class E, class Body> std::string said(Body const& body) {
  try {
    body();
  } catch (E const& error) { return error.what(); }
  return {};
}

inline auto const matrix = pjrt::shape_of<float>({2, 3});
inline auto const scalar = pjrt::shape_of<float>({});

inline std::string const text = R"(module @m {
  func.func public @main(%w: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<f32>)
      -> (tensor<2x3xf32>, tensor<f32>) {
    return %w, %x : tensor<2x3xf32>, tensor<f32>
  }
})";
inline auto const signature =
    pjrt::Signature{.arguments = {matrix, scalar}, .results = {matrix, scalar}, .donated = {0}};

inline pjrt::Client fake_client(int devices) {
  return pjrt::Client{plugin(), {{"cpu_device_count", std::int64_t{devices}}}};
}

/// Arguments of the program above, on each device.
struct Arguments {
  std::vector<std::vector<pjrt::Buffer>> state{};
  std::vector<std::vector<pjrt::Buffer*>> list{};

  Arguments(pjrt::Client const& client, int devices) {
    state.resize(static_cast<std::size_t>(devices));
    for (int d = 0; d < devices; ++d) {
      auto const w = std::array{0.f, 1.f, 2.f, 3.f, 4.f, static_cast<float>(d)};
      auto const x = static_cast<float>(d);
      auto& here   = state[static_cast<std::size_t>(d)];
      here.push_back(client.put(w.data(), matrix, d));
      here.push_back(client.put(&x, scalar, d));
      list.push_back({&here[0], &here[1]});
    }
  }
};

}  // namespace chorale::test::fake
