// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/tensor/cpu/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
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

 private:
  std::byte* grown(std::size_t n) {
    if (n <= lent_.size()) return lent_.data();
    if (n > block_.size()) block_ = Cpu::block{n};
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

/// State of one server: a shard of the variables, the slots of its optimizer, and their version.
///
/// keeps   every change is one whole version: a reader of a snapshot() sees one version, however long it takes
/// cost    values, slots, and one more copy of the values while a snapshot of an older version is read
template <optim::Optimizer O>
class Shard {
 public:
  using Snapshot = std::shared_ptr<Buffer>;

  /// initial   the flat buffer of all variables
  /// memory    for values, as far as it suffices
  ///
  /// throws    BadArgument when the buffer is too small, an option is out of range, or gradients are to be clipped by a norm that no server knows
  Shard(O rule, ShardLayout const& shards, int server, Span<float const> initial, Bytes memory = {})
      : rule_{std::move(rule)}, shards_{shards}, server_{server}, size_{shards.elements(server)} {
    auto const bytes = (size_ * sizeof(float) + 63) / 64 * 64;
    for (; memory.size() >= bytes && buffers_.size() < 2; memory = memory.subspan(bytes))
      buffers_.push_back(std::make_shared<Buffer>(memory.first(bytes)));
    live_ = unread();
    shards.expect_in(initial.size());
    optim::check_options(rule_);
    CHORALE_EXPECTS(rule_.global_clipnorm <= 0 || shards.servers() == 1,
                    "global_clipnorm needs the norm of all gradients, but each of " +
                        std::to_string(shards.servers()) + " servers has its shard only: use one server, or clip "
                        "on the workers");
    shards_.pack(server_, initial, live_->floats(size_));
    slots_.floats(size_ * static_cast<std::size_t>(O::slots));
  }

  std::size_t size() const { return size_; }                               // elements
  std::uint64_t version() const { return version_; }                       // changes so far
  ShardLayout const& shards() const { return shards_; }
  int server() const { return server_; }

  Span<float const> values() const { return live_->floats(size_); }
  Span<float> slots() { return slots_.floats(size_ * static_cast<std::size_t>(O::slots)); }
  Snapshot snapshot() const { return live_; }

  /// Makes one change of related values: f(values, slots) writes both, laid out like shards().
  template <class F>
  void update(F&& f) {
    f(writable(), slots_.floats(size_ * static_cast<std::size_t>(O::slots)));
    ++version_;
  }

  /// Updates the whole shard with gradients that are sums over `rows` rows.
  void apply(Span<float const> gradients, float rows) {
    auto const scale = scale_of(rows, [&] { return Kernels<Cpu>::squared_norm(gradients); });
    update([&](Span<float> values, Span<float> slots) {
      rule_.template update<Cpu>(optim::Update{values, gradients, slots, scale, now});
    });
  }

  /// Updates the whole shard with its part of a flat buffer of gradients. Only if takes_pieces().
  void apply_flat(Span<float const> gradients, float rows) {
    CHORALE_EXPECTS(takes_pieces(), "the norm of a shard is that of the whole shard");
    update([&](Span<float> values, Span<float> slots) {
      shards_.pieces(server_, {0, size_}, [&](Range flat, Range here) {
        rule_.template update<Cpu>(optim::Update{values.subspan(here.begin, here.size()),
                                                 gradients.subspan(flat.begin, flat.size()),
                                                 O::slots == 0 ? slots : slots.subspan(here.begin), 1.0F / rows, now,
                                                 size_});
      });
    });
  }
  bool takes_pieces() const { return rule_.global_clipnorm <= 0; }

  /// Updates single rows: others keep their values and slots, whatever the optimizer does without a gradient. Gradients
  /// of a row that occurs twice are added up, in their order.
  void apply(RowGradients const& rows, float of_rows) {
    add_up(rows);
    auto const scale = scale_of(of_rows, [&] {
      auto squares = 0.0;
      for (auto const& row : kept_) squares += Kernels<Cpu>::squared_norm({row.gradients, rows.width});
      return squares;
    });
    update([&](Span<float> values, Span<float> slots) {
      if constexpr (O::slots <= 1) apply_in_place(rows, scale, values, slots);
      else apply_gathered(rows, scale, values, slots);
    });
  }

  optim::Moment now;                                                       // step: updates of this server

 private:
  template <class SquaredNorm>
  float scale_of(float rows, SquaredNorm&& squared_norm) const {
    auto const mean = 1.0F / rows;
    if (rule_.global_clipnorm <= 0) return mean;
    return mean * optim::clip_factor(squared_norm(), mean, rule_.global_clipnorm);
  }

  /// The values, for writing: a copy if a snapshot of them is in use.
  Span<float> writable() {
    if (live_.use_count() > 2) {                                           // two uses: live_ and buffers_
      auto const next = unread();
      std::ranges::copy(values(), next->floats(size_).begin());
      live_ = next;
    }
    return live_->floats(size_);
  }

  Snapshot unread() {
    for (auto const& buffer : buffers_)
      if (buffer.use_count() == 1) return buffer;
    return buffers_.emplace_back(std::make_shared<Buffer>());
  }

  /// Updates each row in place: with at most one slot, a row's slot is contiguous.
  void apply_in_place(RowGradients const& rows, float scale, Span<float> values, Span<float> slots) {
    auto const width = rows.width;
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      if (k + ahead < kept_.size()) prefetch(values.data() + kept_[k + ahead].at, width);
      auto const [at, gradients] = kept_[k];
      rule_.template update<Cpu>(optim::Update{values.subspan(at, width), {gradients, width},
                                               O::slots == 0 ? slots : slots.subspan(at, width), scale, now});
    }
  }

  /// Updates some rows at a time: gathers them with their slots, and writes them back.
  void apply_gathered(RowGradients const& rows, float scale, Span<float> values, Span<float> slots) {
    constexpr auto parts = std::size_t{1} + O::slots;
    auto const width = rows.width, some = std::max<std::size_t>(1, 4'096 / width);
    for (std::size_t first = 0; first < kept_.size(); first += some) {
      auto const n    = std::min(some, kept_.size() - first);
      auto const here = gathered_.floats(n * width * (parts + 1));         // values, slot 0, slot 1, .., gradients
      auto const each_part = [&](auto&& copy) {
        for (std::size_t part = 0; part < parts; ++part) {
          auto* const all = part == 0 ? values.data() : slots.data() + (part - 1) * size_;
          for (std::size_t k = 0; k < n; ++k)
            copy(all + kept_[first + k].at, here.data() + (part * n + k) * width);
        }
      };
      each_part([&](float const* from, float* to) { std::memcpy(to, from, width * sizeof(float)); });
      auto const gradients = here.subspan(parts * n * width);
      for (std::size_t k = 0; k < n; ++k)
        std::memcpy(gradients.data() + k * width, kept_[first + k].gradients, width * sizeof(float));
      rule_.template update<Cpu>(optim::Update{here.first(n * width), gradients,
                                               here.subspan(n * width, (parts - 1) * n * width), scale, now});
      each_part([&](float* to, float const* from) { std::memcpy(to, from, width * sizeof(float)); });
    }
  }

  /// Prefetches a row that is needed some iterations later.
  static void prefetch(float const* row, std::size_t width) {
    for (std::size_t k = 0; k < std::min<std::size_t>(width, 256); k += 16) __builtin_prefetch(row + k, 1);
  }

  /// Finds the rows to apply, each once: gradients of a row that occurs again are added up separately, in their order.
  void add_up(RowGradients const& rows) {
    auto const width = rows.width;
    place_.resize(std::max(place_.size(), size_ / width + 1));             // rows do not overlap: a place each
    kept_.clear();
    again_.clear();
    for (std::size_t i = 0; i < rows.rows.size(); ++i) {
      if (i + ahead < rows.rows.size()) __builtin_prefetch(&place_[rows.rows[i + ahead].at / width], 1);
      auto const row = rows.rows[i];
      auto& place    = place_[row.at / width];
      if (place != 0) {
        again_.push_back({place - 1, row.gradients});
        continue;
      }
      kept_.push_back(row);
      place = static_cast<std::uint32_t>(kept_.size());
    }
    for (auto const& row : kept_) place_[row.at / width] = 0;
    add_aside(width);
  }

  void add_aside(std::size_t width) {
    auto const sums = sums_.floats(again_.size() * width);
    auto free       = sums.data();
    for (auto const& [which, more] : again_) {
      auto& row = kept_[which];
      if (std::less<>{}(row.gradients, sums.data()) || !std::less<>{}(row.gradients, free)) {   // the first time
        std::memcpy(free, row.gradients, width * sizeof(float));
        row.gradients = std::exchange(free, free + width);
      }
      auto* const sum = sums.data() + (row.gradients - sums.data());
      for (std::size_t k = 0; k < width; ++k) sum[k] += more[k];
    }
  }

  static constexpr std::size_t ahead = 12;                                 // rows

  O rule_;
  ShardLayout shards_;
  int server_;
  std::size_t size_;
  std::vector<Snapshot> buffers_;                                          // live_, snapshots in use, and free ones
  Snapshot live_;
  Buffer slots_, gathered_, sums_;
  std::vector<RowGradient> kept_, again_;                                  // of a push; at of again_: index in kept_
  std::vector<std::uint32_t> place_;                                       // of a row in a push, from 1 on; 0: none
  std::uint64_t version_ = 0;
};

}  // namespace chorale::parameter_server
