// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/nn/trace/call.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <vector>

namespace chorale::nn::graph {

/// A layer of kernels that takes a ragged value position by position: one kernel for each block of positions, so that
/// what comes out of a position does not depend on how many there are. Positions after the last one are zeros.
template <class D, class L, class In, class Out> class BlocksStage {
  using It    = Described<L, PositionOf<In>>;
  using Inner = typename L::template stage<D, typename It::shape>;
  using K     = Kernels<D>;

  static constexpr std::size_t block = RaggedRows::block;

 public:
  static constexpr bool overwrites = Inner::overwrites, keeps_x = !Inner::overwrites, keeps_y = Inner::keeps_y;

  explicit BlocksStage(StageSite const& site) : ragged_{site.ragged + In::ragged_field} {
    constexpr auto rows = static_cast<int>(block * It::repeats);
    auto& runtime       = *static_cast<typename K::runtime*>(site.runtime);
    auto const layout   = [&] {
      using S = typename It::shape;
      if constexpr (S::rank == 3) return K::image(rows, S::dims[0], S::dims[1], S::dims[2]);
      else return K::matrix(rows, static_cast<int>(S::size));
    }();
    inner_.reserve(ragged_->room / block);
    for (std::size_t b = 0; b < ragged_->room / block; ++b)
      inner_.emplace_back(Site<D>{runtime, layout, rows, site.number, site.wants_dx});
  }

  std::size_t workspace() const { return inner_.size() * work() + gradients_size() * sizeof(float); }
  Finds finds() const {
    if constexpr (requires(Inner const& inner) {
                    { inner.reads_workspace() } -> std::same_as<bool>;
                  })
      return inner_.empty() || inner_.front().reads_workspace() ? Finds::always : Finds::nothing;
    else return Finds::always;
  }

  void bind(Ports const& p) {
    in_ = p.in[0], out_ = p.out[0];
    own_ = reinterpret_cast<float*>(p.workspace + inner_.size() * work());
    for (std::size_t b = 0; b < inner_.size(); ++b) {
      auto const part = [&](void* data, std::size_t size) {
        return data == nullptr ? nullptr : static_cast<float*>(data) + b * block * size;
      };
      auto at = chorale::Ports{.x         = part(in_.data, In::size),
                               .y         = part(out_.data, Out::size),
                               .dx        = part(in_.gradient, In::size),
                               .dy        = part(out_.gradient, Out::size),
                               .workspace = p.workspace + b * work()};
      if constexpr (specs.size() > 0) at.kernel = number(p.variables[0].data), at.d_kernel = own_;
      if constexpr (specs.size() > 1) at.bias = number(p.variables[1].data), at.d_bias = own_ + aligned(0);
      inner_[b].bind(at);
    }
    for (std::size_t v = 0; v < specs.size(); ++v) d_[v] = p.variables[v].gradient;
  }
  void read_from(std::size_t, void const*) {}  // never from the batch, which has padding
  void forward(Pass const& pass) {
    clear(in_.data, In::size);
    for (std::size_t b = 0; b < blocks(); ++b) inner_[b].forward(pass);
  }
  void backward(Pass const& pass) {
    clear(out_.gradient, Out::size);
    for (std::size_t b = 0; b < blocks(); ++b) {
      inner_[b].backward(pass);
      auto const* own = own_;
      for (std::size_t v = 0; v < specs.size(); own += aligned(v++)) K::sum(specs[v].size(), d_[v], own, d_[v]);
    }
  }

 private:
  static constexpr auto specs = It::variables();
  static_assert(specs.size() <= 2);

  static float* number(void* data) { return static_cast<float*>(data); }
  static constexpr std::size_t aligned(std::size_t v) { return plan::aligned(specs[v].size()); }
  static constexpr std::size_t gradients_size() {
    auto sum = std::size_t{0};
    for (std::size_t v = 0; v < specs.size(); ++v) sum += aligned(v);
    return sum;
  }
  std::size_t work() const { return inner_.empty() ? 0 : (inner_.front().workspace() + 63) / 64 * 64; }
  std::size_t blocks() const { return (ragged_->positions + block - 1) / block; }

  /// Sets the positions of the last block that belong to no row.
  void clear(void* data, std::size_t size) const {
    if (data != nullptr)
      std::fill(number(data) + ragged_->positions * size, number(data) + blocks() * block * size, 0.0F);
  }

  RaggedRows const* ragged_;
  std::vector<Inner> inner_;
  Port in_, out_;
  float* own_ = nullptr;  // gradients of one block
  std::array<float*, specs.size()> d_{};
};

}  // namespace chorale::nn::graph
