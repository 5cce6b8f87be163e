// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/strategy/parameter_shards.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Host memory that only grows.
class ParameterBuffer {
 public:
  Span<float> floats(std::size_t n) { return {reinterpret_cast<float*>(grown(n * sizeof(float))), n}; }
  Bytes bytes(std::size_t n) { return {grown(n), n}; }
  bool empty() const { return block_.size() == 0; }

 private:
  std::byte* grown(std::size_t n) {
    if (n > block_.size()) block_ = Cpu::block{n};
    return block_.data();
  }

  Cpu::block block_;
};

/// Rows of gradients, to be applied as one.
///
/// at          (n), where each row begins in the shard
/// gradients   (n, width)
struct ParameterRows {
  std::vector<std::size_t> at;
  Span<float> gradients;
  std::size_t width = 0;
};

/// What one server holds: a shard of the variables, the slots of its optimizer, and their version.
///
/// keeps   every change is one version, whole: who reads a snapshot() sees one version, however long it takes
/// cost    values, slots, and one more copy of the values while a snapshot of an older version is read
template <optim::Optimizer O>
class ParameterShard {
 public:
  using Snapshot = std::shared_ptr<ParameterBuffer>;

  /// initial   the flat buffer of all variables
  ///
  /// throws    BadArgument when the buffer is too small, or gradients are to be clipped by a norm that no server knows
  ParameterShard(O rule, ParameterShards const& shards, int server, Span<float const> initial)
      : rule_{std::move(rule)}, shards_{shards}, server_{server}, size_{shards.elements(server)},
        live_{std::make_shared<ParameterBuffer>()} {
    shards.expect_in(initial.size());
    CHORALE_EXPECTS(rule_.global_clipnorm <= 0 || shards.servers() == 1,
                    "global_clipnorm needs the norm of all gradients, but each of " +
                        std::to_string(shards.servers()) + " servers has its shard only: use one server, or clip "
                        "on the workers");
    auto const to = live_->floats(size_);
    shards_.pieces(server_, {0, size_}, [&](Range flat, Range shard) {
      std::ranges::copy(initial.subspan(flat.begin, flat.size()), to.begin() + as_difference(shard.begin));
    });
    slots_.floats(size_ * static_cast<std::size_t>(O::slots));
  }

  std::size_t size() const { return size_; }                               // elements
  std::uint64_t version() const { return version_; }                       // changes so far
  ParameterShards const& shards() const { return shards_; }
  int server() const { return server_; }

  Span<float const> values() const { return live_->floats(size_); }
  Span<float> slots() { return slots_.floats(size_ * static_cast<std::size_t>(O::slots)); }
  Snapshot snapshot() const { return live_; }

  /// One change of related values: f(values, slots), both to be written, laid out as shards() says.
  template <class F>
  void update(F&& f) {
    f(writable(), slots_.floats(size_ * static_cast<std::size_t>(O::slots)));
    ++version_;
  }

  /// gradients   sums over `rows` rows, of the whole shard
  void apply(Span<float const> gradients, float rows) {
    auto const scale = scale_of(gradients, rows);
    update([&](Span<float> values, Span<float> slots) {
      rule_.template update<Cpu>(optim::Update{values, gradients, slots, scale, now});
    });
  }

  /// Applies rows: others keep their values and slots, whatever the optimizer does to what has no gradient. Rows that
  /// are there twice are added up, in their order, into the first.
  void apply(ParameterRows& rows, float of_rows) {
    add_up(rows);
    auto const scale = scale_of(rows.gradients, of_rows);
    update([&](Span<float> values, Span<float> slots) {
      if constexpr (O::slots <= 1) apply_in_place(rows, scale, values, slots);
      else apply_gathered(rows, scale, values, slots);
    });
  }

  optim::Moment now;                                                       // step: updates of this server

 private:
  static std::ptrdiff_t as_difference(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

  float scale_of(Span<float const> gradients, float rows) const {
    auto const mean = 1.0F / rows;
    if (rule_.global_clipnorm <= 0) return mean;
    return mean * optim::clip_factor<Cpu>(gradients, mean, rule_.global_clipnorm);
  }

  /// The values, which nobody else reads.
  Span<float> writable() {
    if (live_.use_count() > 1) {
      if (!spare_ || spare_.use_count() > 1) spare_ = std::make_shared<ParameterBuffer>();
      std::ranges::copy(values(), spare_->floats(size_).begin());
      std::swap(live_, spare_);
    }
    return live_->floats(size_);
  }

  /// A row with its slot is contiguous: one update each, where it lies.
  void apply_in_place(ParameterRows const& rows, float scale, Span<float> values, Span<float> slots) {
    auto const width = rows.width;
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      if (k + ahead < kept_.size()) prefetch(values.data() + rows.at[kept_[k + ahead]], width);
      auto const i = kept_[k], at = rows.at[i];
      rule_.template update<Cpu>(optim::Update{values.subspan(at, width), rows.gradients.subspan(i * width, width),
                                               O::slots == 0 ? slots : slots.subspan(at, width), scale, now});
    }
  }

  /// Some rows at a time are brought together with their slots, updated, and put back.
  void apply_gathered(ParameterRows const& rows, float scale, Span<float> values, Span<float> slots) {
    constexpr auto parts = std::size_t{1} + O::slots;
    auto const width = rows.width, some = std::max<std::size_t>(1, 4'096 / width);
    for (std::size_t first = 0; first < kept_.size(); first += some) {
      auto const n    = std::min(some, kept_.size() - first);
      auto const here = gathered_.floats(n * width * (parts + 1));         // values, slot 0, slot 1, .., gradients
      auto const each_part = [&](auto&& copy) {
        for (std::size_t part = 0; part < parts; ++part) {
          auto* const all = part == 0 ? values.data() : slots.data() + (part - 1) * size_;
          for (std::size_t k = 0; k < n; ++k)
            copy(all + rows.at[kept_[first + k]], here.data() + (part * n + k) * width);
        }
      };
      each_part([&](float const* from, float* to) { std::memcpy(to, from, width * sizeof(float)); });
      auto const gradients = here.subspan(parts * n * width);
      for (std::size_t k = 0; k < n; ++k)
        std::memcpy(gradients.data() + k * width, rows.gradients.data() + kept_[first + k] * width,
                    width * sizeof(float));
      rule_.template update<Cpu>(optim::Update{here.first(n * width), gradients,
                                               here.subspan(n * width, (parts - 1) * n * width), scale, now});
      each_part([&](float* to, float const* from) { std::memcpy(to, from, width * sizeof(float)); });
    }
  }

  /// Of what is needed some turns later.
  static void prefetch(float const* row, std::size_t width) {
    for (std::size_t k = 0; k < std::min<std::size_t>(width, 256); k += 16) __builtin_prefetch(row + k, 1);
  }

  /// Finds the rows to apply, each once: what comes twice is added to the first.
  void add_up(ParameterRows const& rows) {
    auto const width = rows.width;
    place_.resize(std::max(place_.size(), size_ / width + 1));             // rows do not overlap: a place each
    kept_.clear();
    for (std::size_t i = 0; i < rows.at.size(); ++i) {
      if (i + ahead < rows.at.size()) __builtin_prefetch(&place_[rows.at[i + ahead] / width], 1);
      auto& place = place_[rows.at[i] / width];
      if (place == 0) {
        kept_.push_back(i);
        place = static_cast<std::uint32_t>(i + 1);
        continue;
      }
      auto const from = rows.gradients.subspan(i * width, width);
      auto const to   = rows.gradients.subspan((place - 1) * width, width);
      for (std::size_t k = 0; k < width; ++k) to[k] += from[k];
    }
    for (auto const i : kept_) place_[rows.at[i] / width] = 0;
  }

  static constexpr std::size_t ahead = 12;                                 // rows

  O rule_;
  ParameterShards shards_;
  int server_;
  std::size_t size_;
  Snapshot live_, spare_;
  ParameterBuffer slots_, gathered_;
  std::vector<std::size_t> kept_;                                          // of the rows of a push, those to apply
  std::vector<std::uint32_t> place_;                                       // of a row in a push, from 1 on; 0: none
  std::uint64_t version_ = 0;
};

}  // namespace chorale
