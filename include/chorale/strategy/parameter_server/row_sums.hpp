// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/tensor/cpu/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// Host memory that only grows.
///
/// lent   memory that is used as long as it suffices; outlives the buffer
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Bytes lent) : lent_{lent} {}

  Span<float> floats(std::size_t n) { return {reinterpret_cast<float*>(grown(n * sizeof(float))), n}; }
  Bytes bytes(std::size_t n) { return {grown(n), n}; }
  bool empty() const { return block_.size() == 0 && lent_.empty(); }
  std::size_t room() const { return block_.size(); }

  /// The first n bytes, with what they held; of a buffer without lent memory.
  Bytes kept(std::size_t n) {
    if (n > block_.size()) {
      auto more = Cpu::block{std::max(n, block_.size() + block_.size() / 2)};
      if (block_.size() != 0) std::memcpy(more.data(), block_.data(), block_.size());
      block_ = std::move(more);
    }
    return {block_.data(), n};
  }

 private:
  std::byte* grown(std::size_t n) {
    if (n <= lent_.size()) return lent_.data();
    if (n > block_.size()) block_ = Cpu::block{std::max(n, block_.size() + block_.size() / 2)};
    return block_.data();
  }

  Bytes lent_;
  Cpu::block block_;
};

/// A row of a table: where it begins in the shard, and its gradients, (width), if there are any.
struct RowGradient {
  std::size_t at;
  float const* gradients;
};

/// Rows that are applied as one update.
struct RowGradients {
  std::vector<RowGradient> rows;
  std::size_t width = 0;
};

/// Rows to apply, each once: gradients of a row that occurs again are added up separately, in their order.
///
/// keeps   memory for as many rows as came so far, and 4 bytes for each row of the table; the gradients that were added
///         up live until they are applied
class RowSums {
 public:
  /// where   elements of the shard in which all of the rows lie
  void add_up(RowGradients const& rows, Range where) {
    width_ = rows.width;
    first_ = where.begin;
    place_.resize(std::max(place_.size(), where.size() / width_ + 1));  // rows do not overlap: a place each
    kept_.clear();
    again_.clear();
    for (std::size_t i = 0; i < rows.rows.size(); ++i) {
      if (i + ahead < rows.rows.size()) __builtin_prefetch(&place_of(rows.rows[i + ahead]), 1);
      auto const row = rows.rows[i];
      auto& place    = place_of(row);
      if (place != 0) {
        again_.push_back({place - 1, row.gradients});
        continue;
      }
      kept_.push_back(row);
      place = static_cast<std::uint32_t>(kept_.size());
    }
    for (auto const& row : kept_) place_of(row) = 0;
    add_aside();
  }

  Span<RowGradient const> rows() const { return kept_; }
  std::size_t width() const { return width_; }

  double squared_norm() const {
    auto squares = 0.0;
    for (auto const& row : kept_) squares += Kernels<Cpu>::squared_norm({row.gradients, width_});
    return squares;
  }
  bool finite() const {
    return std::ranges::all_of(
        kept_, [this](RowGradient const& row) { return Kernels<Cpu>::finite({row.gradients, width_}); });
  }

 private:
  static constexpr std::size_t ahead = 12;  // rows

  std::uint32_t& place_of(RowGradient const& row) { return place_[(row.at - first_) / width_]; }

  void add_aside() {
    auto const sums = sums_.floats(again_.size() * width_);
    auto free       = sums.data();
    for (auto const& [which, more] : again_) {
      auto& row = kept_[which];
      if (std::less<>{}(row.gradients, sums.data()) || !std::less<>{}(row.gradients, free)) {  // the first time
        std::memcpy(free, row.gradients, width_ * sizeof(float));
        row.gradients = std::exchange(free, free + width_);
      }
      auto* const sum = sums.data() + (row.gradients - sums.data());
      for (std::size_t k = 0; k < width_; ++k) sum[k] += more[k];
    }
  }

  Buffer sums_;
  std::vector<RowGradient> kept_, again_;  // at of again_: index in kept_
  std::vector<std::uint32_t> place_;       // of a row in a push, from 1 on; 0: none
  std::size_t width_ = 1, first_ = 0;
};

}  // namespace chorale::parameter_server
