// SPDX-License-Identifier: Apache-2.0
//
// Where the values, workspaces and gradients of a network lie, so that those which are never in use together share
// memory.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/trace/again.hpp>
#include <chorale/nn/trace/records.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace chorale::nn::graph {

/// Steps of a pass in which a piece of memory is in use, both ends included.
struct Lifetime {
  int first, last;
};

/// A piece of memory: its bytes, when it is in use, and where it then lies.
struct Piece {
  std::size_t bytes = 0;
  std::vector<Lifetime> used;
  std::size_t offset = 0;

  bool is_used_with(Piece const& other) const {
    for (auto const& a : used)
      for (auto const& b : other.used)
        if (a.first <= b.last && b.first <= a.last) return true;
    return false;
  }
};

/// Gives each piece an offset, a multiple of 64, so that pieces that are in use together do not overlap: the largest
/// first, each at the lowest place that is free.
///
/// returns   bytes of all
inline std::size_t overlay(std::vector<Piece>& pieces) {
  auto order = std::vector<std::size_t>(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return pieces[a].bytes > pieces[b].bytes; });
  auto total  = std::size_t{0};
  auto placed = std::vector<Piece const*>{};  // ascending offsets
  for (auto const i : order) {
    auto& piece = pieces[i];
    if (piece.bytes == 0) break;
    auto const size = (piece.bytes + 63) / 64 * 64;
    auto offset     = std::size_t{0};
    for (auto const* other : placed) {
      if (!other->is_used_with(piece)) continue;
      if (other->offset >= offset + size) break;
      offset = std::max(offset, other->offset + (other->bytes + 63) / 64 * 64);
    }
    piece.offset = offset;
    total        = std::max(total, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &piece,
                                   [](auto const* a, auto const* b) { return a->offset < b->offset; }),
                  &piece);
  }
  return total;
}

/// When the memory of a network is in use, in steps of a pass: forward of call c is step c, the losses are the step
/// after them, and step k of Schedule::steps is 1 + k steps after the losses.
class Lifetimes {
 public:
  /// finds     of each call
  /// apart     true if all memory is in use all the time: for a device whose kernels know values by their addresses
  Lifetimes(Records const& g, Schedule const& s, Span<Finds const> finds, bool apart)
      : g_{g}, s_{s}, apart_{apart}, losses_{static_cast<int>(g.calls.size())},
        end_{losses_ + static_cast<int>(s.steps.size()) + 1}, again_(g.calls.size(), -1), backward_(g.calls.size(), -1),
        variables_(g.calls.size(), -1) {
    for (std::size_t k = 0; k < s.steps.size(); ++k) {
      auto const& step = s.steps[k];
      if (step.what == Do::again) again_[at(step.call)] = step_of(k);
      if (step.what == Do::backward) backward_[at(step.call)] = step_of(k);
      if (step.what == Do::variables) variables_[at(step.call)] = step_of(k);
    }
    values();
    workspaces(finds);
    registers();
  }

  /// When the buffer that a value begins is in use; nothing of a value that lies in another's.
  std::vector<Lifetime> of_value(std::size_t v) const { return values_[v]; }
  std::vector<Lifetime> of_workspace(std::size_t c) const { return workspaces_[c]; }
  /// When the memory that a register begins is in use; nothing of one that lies in another's.
  std::vector<Lifetime> of_register(std::size_t r) const { return registers_[r]; }
  /// The register in whose memory a register lies; -1: it has none.
  int home(std::size_t r) const { return homes_[r]; }
  /// When what backward of these calls alone uses is in use.
  template <class F> std::vector<Lifetime> of_backward(F const& uses) const {
    auto used = std::vector<Lifetime>{};
    for (std::size_t c = 0; c < backward_.size(); ++c)
      if (backward_[c] >= 0 && uses(g_.calls[c])) used.push_back({backward_[c], backward_[c]});
    return apart_ ? all() : used;
  }

 private:
  int step_of(std::size_t k) const { return losses_ + 1 + static_cast<int>(k); }
  /// The last step of backward of a call.
  int last_of(std::size_t c) const { return std::max(backward_[c], variables_[c]); }
  std::vector<Lifetime> all() const { return {{0, end_}}; }

  static void extend(Lifetime& one, int step) {
    one.first = std::min(one.first, step);
    one.last  = std::max(one.last, step);
  }

  void values() {
    auto const none = Lifetime{end_, -1};
    auto forward = std::vector<Lifetime>(g_.values.size(), none), backward = forward;
    auto const lasts = lasting_values(g_);
    auto lasting     = std::vector<char>(g_.values.size());  // buffers
    auto const use   = [&](std::vector<Lifetime>& of, int v, int step) { extend(of[at(s_.buffer[at(v)])], step); };
    for (std::size_t c = 0; c < g_.calls.size(); ++c) {
      auto const& call = g_.calls[c];
      for (int i = 0; i < call.outs; ++i) {
        auto const y = call.first_out + i;
        use(forward, y, static_cast<int>(c));
        if (again_[c] >= 0) use(backward, y, again_[c]);
        if (backward_[c] >= 0 && call.ops->keeps_y) use(backward, y, backward_[c]), use(backward, y, last_of(c));
      }
      for (int i = 0; i < call.ins; ++i) {
        auto const x = g_.in(call, i);
        use(forward, x, static_cast<int>(c));
        if (again_[c] >= 0) use(backward, x, again_[c]);
        if (backward_[c] >= 0 && call.ops->keeps_x) use(backward, x, backward_[c]), use(backward, x, last_of(c));
      }
    }
    for (auto const v : g_.outputs) use(forward, v, losses_);
    for (std::size_t v = 0; v < lasts.size(); ++v)
      if (lasts[v] != 0) lasting[at(s_.buffer[v])] = 1;
    values_.resize(g_.values.size());
    for (std::size_t v = 0; v < values_.size(); ++v) {
      if (at(s_.buffer[v]) != v) continue;
      auto& used = values_[v];
      if (apart_ || g_.values[v].call < 0) used = all();
      else if (lasting[v] != 0) used = {{forward[v].first, std::max(forward[v].last, backward[v].last)}};
      else used = {forward[v]};
      if (!apart_ && lasting[v] == 0 && backward[v].last >= 0) used.push_back(backward[v]);
    }
  }

  void workspaces(Span<Finds const> finds) {
    workspaces_.resize(g_.calls.size());
    for (std::size_t c = 0; c < workspaces_.size(); ++c) {
      auto const now = static_cast<int>(c), again = again_[c], backward = backward_[c];
      auto& used = workspaces_[c];
      if (apart_ || finds[c] == Finds::always) {
        used = all();
      } else if (finds[c] == Finds::in_backward && backward >= 0) {
        if (again >= 0) used = {{now, now}, {again, last_of(c)}};
        else used = {{now, last_of(c)}};
      } else {
        for (auto const step : {now, again, backward, variables_[c]})
          if (step >= 0) used.push_back({step, step});
      }
    }
  }

  void registers() {
    homes_.assign(s_.registers.size(), -1);
    registers_.resize(s_.registers.size());
    auto first = std::vector<int>(s_.slots, -1);  // register of each slot
    for (std::size_t r = 0; r < homes_.size(); ++r) {
      auto const& one = s_.registers[r];
      if (one.slot < 0) continue;
      if (first[at(one.slot)] < 0) first[at(one.slot)] = static_cast<int>(r);
      homes_[r]  = apart_ ? first[at(one.slot)] : one.in_place < 0 ? static_cast<int>(r) : homes_[at(one.in_place)];
      auto& used = registers_[at(homes_[r])];
      if (used.empty()) used = {{step_of(at(one.first)), step_of(at(one.last))}};
      extend(used[0], step_of(at(one.last)));
    }
    for (auto const r : s_.d_output)
      if (homes_[at(r)] >= 0) extend(registers_[at(homes_[at(r)])][0], losses_);
    for (std::size_t v = 0; v < g_.values.size(); ++v)  // read after backward, until the next step
      if (auto const r = s_.d_value[v]; r >= 0 && g_.values[v].asked && homes_[at(r)] >= 0)
        registers_[at(homes_[at(r)])] = all();
    if (apart_)
      for (auto& used : registers_)
        if (!used.empty()) used = all();
  }

  Records g_;
  Schedule const& s_;
  bool apart_;
  int losses_, end_;
  std::vector<int> again_, backward_, variables_;  // steps of each call; -1: none
  std::vector<std::vector<Lifetime>> values_, workspaces_, registers_;
  std::vector<int> homes_;
};

}  // namespace chorale::nn::graph
