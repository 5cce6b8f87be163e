// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/tensor/kernels.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace chorale::nn::graph {

/// The stages of all calls, one after another in one block of memory.
template <class Net, class D> class Stages {
  using Low                      = Lowered<Net, D>;
  static constexpr auto const& g = Low::calls;
  static constexpr auto N        = Low::counts;

 public:
  Stages(typename Kernels<D>::runtime& runtime, int rows, RaggedRows const* ragged) {
    auto layouts = std::array<void const*, N.values>{};
    auto total   = std::size_t{0};
    for (std::size_t c = 0; c < N.calls; ++c) {
      begins_[c] = total;
      total += (g.calls[c].ops->size + sizeof(Line) - 1) / sizeof(Line);
    }
    lines_.resize(total);
    auto in = std::vector<void const*>{};
    for (std::size_t c = 0; c < N.calls; ++c) {
      auto const& call = g.calls[c];
      in.clear();
      for (int i = 0; i < call.ins; ++i) in.push_back(layouts[at(g.ins[at(call.first_in + i)])]);
      auto const y = at(call.first_out);
      try {
        call.ops->make((*this)[c], {&runtime, rows, call.number, Low::wants_dx(call), Low::plain[y], in, ragged});
      } catch (...) {
        destroy(c);
        throw;
      }
      if (call.ops->layout != nullptr) layouts[y] = call.ops->layout((*this)[c]);
    }
  }
  Stages(Stages const&)            = delete;
  Stages& operator=(Stages const&) = delete;
  ~Stages() { destroy(N.calls); }

  void* operator[](std::size_t c) { return &lines_[begins_[c]]; }
  void const* operator[](std::size_t c) const { return &lines_[begins_[c]]; }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };

  void destroy(std::size_t count) {
    while (count-- > 0) g.calls[count].ops->destroy((*this)[count]);
  }

  std::vector<Line> lines_;
  std::array<std::size_t, N.calls> begins_{};
};

}  // namespace chorale::nn::graph
