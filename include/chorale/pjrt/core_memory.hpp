// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/lowering/step.hpp>
#include <chorale/pjrt/device/pjrt.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

/// The variables of a copy and the slots of its optimizer, on the host and on all cores of a device. Either side is
/// newer at times: changed_on_host() and take() say so.
///
///   each core   variables │ slot 0 of each trained variable │ slot 1 of each │ ..
///   in shards   variables │ a shard of slot 0 of all trained variables │ a shard of slot 1 │ ..
class CoreMemory {
 public:
  /// variables, slots    memory of the host, laid out by the plan; it outlives this object
  CoreMemory(Pjrt device, PlanView const& plan, int num_slots, Span<float> variables, Span<float> slots)
      : device_{std::move(device)}, plan_{plan}, num_slots_{static_cast<std::size_t>(num_slots)}, variables_{variables},
        slots_{slots}, held_(device_.cores().size()) {}

  std::size_t cores() const { return held_.size(); }
  /// True if each core has a shard of the slots.
  bool in_shards() const { return device_.shards_slots() && cores() > 1; }

  /// The variables that a core has, sent there if the host's are newer; after them the slots, if they were requested.
  std::vector<pjrt::Buffer>& variables(std::size_t core) {
    send();
    return held_[core];
  }
  /// The variables and slots that a core has, sent there if the host's are newer.
  std::vector<pjrt::Buffer>& all(std::size_t core) {
    send();
    send_slots();
    return held_[core];
  }

  /// Says that the host has changed variables or slots.
  void changed_on_host() { newest_ = Newest::host; }

  /// Takes over what a step of all cores has made of all that they have: the first results of each.
  void take(std::vector<std::vector<pjrt::Buffer>>& results) {
    for (std::size_t core = 0; core < cores(); ++core)
      for (std::size_t i = 0; i < held_[core].size(); ++i) held_[core][i] = std::move(results[core][i]);
    newest_ = Newest::cores;
  }
  /// Says that a step has failed which may have taken over memory of the cores: what the host has is sent again.
  void lost() {
    if (newest_ == Newest::both) newest_ = Newest::host;
  }

  /// Copies variables and slots to the host, if the cores' are newer.
  void bring_back() {
    if (newest_ != Newest::cores) return;
    auto copies     = std::vector<pjrt::Event>{};
    auto const copy = [&](Span<float> host, VariableSpec const&) {
      copies.push_back(held_[0][copies.size()].get_later(host.data(), host.size_bytes()));
    };
    each_variable(copy);
    each_whole_slot(copy);
    for (auto& copied : copies) copied.wait();
    each_sharded([&](std::size_t i, std::size_t slot, std::vector<float>& all, std::size_t shard) {
      for (std::size_t core = 0; core < cores(); ++core)
        held_[core][i].get(all.data() + core * shard, shard * sizeof(float));
      auto* from = all.data();
      each_slot(slot, [&](Span<float> host, VariableSpec const&) {
        std::copy_n(from, host.size(), host.data());
        from += host.size();
      });
    });
    newest_ = Newest::both;
  }

  /// True if all cores have the same bits of all variables, and of slots that were sent to each of them whole.
  bool agrees() {
    send();
    auto first = std::vector<float>{}, other = std::vector<float>{};
    auto const whole = in_shards() ? plan_.variables.size() : held_[0].size();
    for (std::size_t i = 0; i < whole; ++i) {
      auto const bytes = held_[0][i].shape().bytes();
      first.resize(bytes / sizeof(float)), other.resize(first.size());
      held_[0][i].get(first.data(), bytes);
      for (std::size_t core = 1; core < cores(); ++core) {
        held_[core][i].get(other.data(), bytes);
        if (std::memcmp(first.data(), other.data(), bytes) != 0) return false;
      }
    }
    return true;
  }

 private:
  enum class Newest { host, both, cores };

  /// Calls f(memory of the host, spec) for a slot of each trained variable.
  void each_slot(std::size_t slot, auto&& f) const {
    for (auto const& v : plan_.variables)
      if (v.spec.trained()) f(slots_.subspan(slot * plan_.slot_stride() + v.slot_offset(), v.size), v.spec);
  }
  void each_variable(auto&& f) const {
    for (auto const& v : plan_.variables) f(variables_.subspan(v.offset, v.size), v.spec);
  }
  /// Calls f(memory of the host, spec) for all slots that each core has whole.
  void each_whole_slot(auto&& f) const {
    for (std::size_t slot = 0; slot < num_slots_ && !in_shards(); ++slot) each_slot(slot, f);
  }
  /// Calls f(index, slot, room for all shards, elements of one) for each slot that cores have in shards.
  void each_sharded(auto&& f) const {
    if (!in_shards()) return;
    auto const shard = static_cast<std::size_t>(shard_of_trained(plan_, static_cast<int>(cores())));
    auto all         = std::vector<float>(shard * cores());
    for (std::size_t slot = 0; slot < num_slots_; ++slot) f(plan_.variables.size() + slot, slot, all, shard);
  }

  void put(std::size_t core, float const* data, Dims const& dims) {
    auto const shape = pjrt::shape_of<float>(pjrt::Dims{std::span{dims.data(), dims.size()}});
    held_[core].push_back(device_.client().put(data, shape, device_.cores()[core]));
  }
  /// Copies variables to the cores, if the host's are newer.
  void send() {
    if (newest_ != Newest::host) return;
    for (std::size_t core = 0; core < cores(); ++core) {
      held_[core].clear();
      each_variable([&](Span<float> host, VariableSpec const& spec) { put(core, host.data(), dims_of(spec)); });
    }
    newest_    = Newest::both;
    has_slots_ = false;
  }
  /// Copies slots to the cores, which have the host's variables, unless they have them: a step without an update reads
  /// none.
  void send_slots() {
    if (has_slots_) return;
    for (std::size_t core = 0; core < cores(); ++core)
      each_whole_slot([&](Span<float> host, VariableSpec const& spec) { put(core, host.data(), dims_of(spec)); });
    each_sharded([&](std::size_t, std::size_t slot, std::vector<float>& all, std::size_t shard) {
      auto* to = all.data();
      each_slot(slot, [&](Span<float> host, VariableSpec const&) { to = std::copy_n(host.data(), host.size(), to); });
      for (std::size_t core = 0; core < cores(); ++core)
        put(core, all.data() + core * shard, {static_cast<std::int64_t>(shard)});
    });
    has_slots_ = true;
  }

  Pjrt device_;
  PlanView plan_;
  std::size_t num_slots_;
  Span<float> variables_, slots_;
  Newest newest_  = Newest::host;
  bool has_slots_ = false;                       // the cores have the slots, too
  std::vector<std::vector<pjrt::Buffer>> held_;  // [core][variable or slot]
};

}  // namespace chorale::nn::stablehlo
