// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/split_variable.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/tensor/whole_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chorale::detail {

/// The part of a variable that a replica has, of those along the axis over which it is split.
template <class S> constexpr int part_of(VariableSpec const& spec, Rank rank) {
  return spec.split.parts == 1 ? 0 : StrategyTraits<S>::coordinate(rank, spec.split.along);
}

/// Variables and slots as one device has them, on rank 0: they are gathered from the ranks that have parts or shards of
/// them, and dealt out to these.
///
/// keeps   where rank 0 has all of them, they stay in its copy: nothing is copied or sent
template <class S, class Copy> class WholeState {
  static constexpr auto each     = static_cast<std::size_t>(Copy::optimizer_slots);
  static constexpr bool has_mesh = StrategyTraits<S>::has_mesh, has_shards = shards_optimizer<S>,
                        has_runs = shards_variables<S>;

 public:
  explicit WholeState(PlanView const& plan)
      : parts_{plan.variables}, stride_of_part_{plan.slot_stride()}, whole_{parts_} {}

  bool is_split() const { return whole_.is_split(); }
  std::uint64_t hash() const { return whole_.hash(); }

  /// All variables, on rank 0 after make_room().
  Variables variables(Copy const& copy) {
    return whole_.is_split() || has_runs ? whole_.in(values_) : Variables{copy.net.variables()};
  }
  Span<float> slots(Copy& copy) {
    return whole_.is_split() || has_shards ? Span<float>{slots_} : copy.optimizer.slots();
  }

  /// Takes the memory, on rank 0, for what its copy does not have.
  void make_room() {
    if (whole_.is_split() || has_runs) values_.assign(whole_.values(), 0.0F);
    if (whole_.is_split() || has_shards) slots_.assign(each * whole_.slot_stride(), 0.0F);
  }

  /// Brings variables and slots to rank 0, which has made room. Every replica calls it.
  void gather(auto& replica, Copy& copy) {
    if constexpr (!has_mesh) {
      if constexpr (has_shards) replica.gather_shards(copy.optimizer.cut(), copy.optimizer.slots(), slots_, each);
      gather_runs(replica, copy);
    } else {
      if (!whole_.is_split() && !has_shards) return;
      auto shards = std::vector<float>{};
      auto slots  = copy.optimizer.slots();
      if constexpr (has_shards) {
        auto& along = replica.along_data();
        shards.resize(along.id() == 0 ? each * stride_of_part_ : 0);
        along.gather_slots(slots, shards, each);
        slots = shards;
      }
      auto const values = copy.net.variables().values;
      if (replica.id() != 0 && brings(replica.id()).empty()) return;
      if (replica.id() != 0) {
        replica.exchange(0, std::as_bytes(values), {});
        return replica.exchange(0, std::as_bytes(slots), {});
      }
      put(values, slots, 0, "");
      auto their_values = std::vector<float>(values.size()), their_slots = std::vector<float>(slots.size());
      for (Rank rank = 1; rank < replica.num_replicas(); ++rank) {
        auto const along = brings(rank);
        if (along.empty()) continue;
        replica.exchange(rank, {}, std::as_writable_bytes(Span<float>{their_values}));
        replica.exchange(rank, {}, std::as_writable_bytes(Span<float>{their_slots}));
        put(their_values, their_slots, rank, along);
      }
    }
  }

  /// Brings the variables alone to rank 0, where replicas have runs of them.
  void gather_runs([[maybe_unused]] auto& replica, [[maybe_unused]] Copy& copy) {
    if constexpr (has_runs) replica.gather_shards(copy.units().cut(), copy.units().values(), body());
  }

  /// Brings each replica its part of the variables and slots that rank 0 has. Undoes gather().
  ///
  /// with_slots   false: of the variables alone
  void scatter(auto& replica, Copy& copy, bool with_slots = true) {
    auto const values = copy.net.all().values;  // none where a replica has runs of them
    auto slots        = with_slots ? copy.optimizer.slots() : Span<float>{};
    if constexpr (!has_mesh) {
      if constexpr (has_runs) {
        replica.scatter_shards(copy.units().cut(), body(), copy.units().values());
        copy.units().changed();
      } else {
        replica.broadcast(values);
      }
      if constexpr (has_shards) {
        if (with_slots) replica.scatter_shards(copy.optimizer.cut(), slots_, slots, each);
      } else if (with_slots) {
        replica.broadcast(slots);
      }
    } else {
      auto& along = replica.along_data();
      auto shards = std::vector<float>{};  // of all replicas along the data axis
      if (has_shards && with_slots && along.id() == 0) shards.resize(each * stride_of_part_);
      auto const to = has_shards ? Span<float>{shards} : slots;
      if (replica.id() == 0) deal_out(replica, copy, values, to);
      else if (along.id() == 0 || is_split_along_data_) {
        replica.exchange(0, {}, std::as_writable_bytes(values));
        replica.exchange(0, {}, std::as_writable_bytes(to));
      }
      if (is_split_along_data_) return;  // each has what is its own
      along.broadcast(values);
      if constexpr (has_shards) {
        if (with_slots) along.scatter_slots(shards, slots, each);
      } else if (with_slots) {
        along.broadcast(slots);
      }
    }
  }

  /// Writes a rank's part of the variables and slots into the whole ones on rank 0.
  ///
  /// along   takes only variables that are split along this axis; empty: all variables, also unsplit ones
  void put(Span<float const> values, Span<float const> slots, Rank rank, std::string_view along) {
    each_run(rank, along, false, [&](std::size_t in_whole, std::size_t in_part, std::size_t n) {
      if (whole_.is_split()) std::copy_n(&values[in_part], n, &values_[in_whole]);
    });
    if (slots.empty()) return;
    each_run(rank, along, true, [&](std::size_t in_whole, std::size_t in_part, std::size_t n) {
      for (std::size_t k = 0; k < each; ++k)
        std::copy_n(&slots[k * stride_of_part_ + in_part], n, &slots_[k * whole_.slot_stride() + in_whole]);
    });
  }

 private:
  /// The dense variables in the memory that rank 0 has made.
  Span<float> body() { return values_.empty() ? Span<float>{} : whole_.in(values_).body(); }

  /// The axis whose parts a rank brings: the only one along which it is not at the first place. Empty if there is none,
  /// or it is the data axis, and nothing is split along that.
  std::string_view brings(Rank rank) const {
    auto axis = std::string_view{};
    if constexpr (has_mesh) {
      using M       = typename S::mesh_type;
      auto const at = M::coordinates(rank);
      for (std::size_t a = 0; a < M::axes; ++a) {
        if (at[a] == 0) continue;
        if (!axis.empty() || (M::names[a] == M::data && !is_split_along_data_)) return {};
        axis = M::names[a];
      }
    }
    return axis;
  }

  /// Sends the first rank of each group along the data axis, or every rank where a variable is split along it, what it
  /// has of rank 0's variables and slots.
  void deal_out(auto& replica, Copy& copy, Span<float> values, Span<float> slots) {
    auto const from_values = variables(copy).values;
    auto const from_slots  = this->slots(copy);
    auto image_of_values   = std::vector<float>(values.size());
    auto image_of_slots    = std::vector<float>(slots.size());
    for (auto rank = replica.num_replicas(); rank-- > 0;) {  // rank 0 last: its copy may be the source
      if (StrategyTraits<S>::coordinate(rank, S::mesh_type::data) != 0 && !is_split_along_data_) continue;
      each_run(rank, "", false, [&](std::size_t in_whole, std::size_t in_part, std::size_t n) {
        std::copy_n(&from_values[in_whole], n, &image_of_values[in_part]);
      });
      if (!slots.empty())
        each_run(rank, "", true, [&](std::size_t in_whole, std::size_t in_part, std::size_t n) {
          for (std::size_t k = 0; k < each; ++k)
            std::copy_n(&from_slots[k * whole_.slot_stride() + in_whole], n,
                        &image_of_slots[k * stride_of_part_ + in_part]);
        });
      if (rank == 0) break;
      replica.exchange(rank, std::as_bytes(Span<float const>{image_of_values}), {});
      replica.exchange(rank, std::as_bytes(Span<float const>{image_of_slots}), {});
    }
    std::ranges::copy(image_of_values, values.begin());
    std::ranges::copy(image_of_slots, slots.begin());
  }

  /// Calls f(in whole, in part, elements) for each run of the variables that a rank has, or of their places in a slot.
  template <class F> void each_run(Rank rank, std::string_view along, bool in_slot, F&& f) const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      auto const& part  = parts_[i];
      auto const& whole = whole_.variables()[i];
      if (!along.empty() && (part.spec.split.parts == 1 || part.spec.split.along != along)) continue;
      auto const to = in_slot ? whole.slot_offset() : whole.offset, from = in_slot ? part.slot_offset() : part.offset;
      chorale::each_run(part.spec, part_of<S>(part.spec, rank),
                        [&](Range run, std::size_t first) { f(to + first, from + run.begin, run.size()); });
    }
  }

  Span<PlannedVariable const> parts_;
  std::size_t stride_of_part_;  // elements of a slot that a rank has
  WholePlan whole_;
  bool is_split_along_data_ =
      std::ranges::any_of(parts_, [](auto const& v) { return chorale::is_split_along_data(v.spec); });
  std::vector<float> values_, slots_;  // on rank 0
};

/// Variables and slots of all stages of a pipeline.
template <class S, class Copy> requires(StrategyTraits<S>::has_stages) class WholeState<S, Copy> {
  static constexpr auto each = static_cast<std::size_t>(Copy::optimizer_slots);

 public:
  explicit WholeState(PlanView const& plan) : plan_{plan} {}

  std::uint64_t hash() const { return plan_.hash; }
  bool is_split() const { return true; }  // no replica has all of it

  Variables variables(Copy const&) { return {values_, plan_.variables, plan_.table_elements}; }
  Span<float> slots(Copy&) { return slots_; }

  void make_room() {
    values_.assign(plan_.values(), 0.0F);
    slots_.assign(each * plan_.slot_stride(), 0.0F);
  }

  /// Writes the variables of one stage into the variables of the whole network.
  void put(Variables const& stage) {
    for (std::size_t i = 0; i < stage.size(); ++i)
      for (auto const& v : plan_.variables)
        if (std::string_view{v.name} == stage[i].name) std::ranges::copy(stage[i].value, &values_[v.offset]);
  }

  /// Brings each variable and its slots from the stage that owns it to rank 0, which has made room.
  void gather(auto& replica, Copy& copy) {
    auto const slots = copy.optimizer.slots();
    for (std::size_t v = 0; v < plan_.variables.size(); ++v) {
      auto const& whole = plan_.variables[v];
      auto const owner  = first_rank_of(copy.learner().owner_of(v));
      if (replica.id() != 0 && replica.id() != owner) continue;
      auto const bring = [&](Span<float const> mine, float* to) {
        if (owner == 0) std::ranges::copy(mine, to);
        else if (replica.id() == owner) replica.exchange(0, std::as_bytes(mine), {});
        else replica.exchange(owner, {}, std::as_writable_bytes(Span<float>{to, whole.size}));
      };
      auto const is_root  = replica.id() == 0;
      auto const* const i = replica.id() == owner ? own(copy, v) : nullptr;
      bring(i == nullptr ? Span<float const>{} : copy.net.variables().values.subspan(i->offset, i->size),
            is_root ? &values_[whole.offset] : nullptr);
      for (std::size_t k = 0; k < each; ++k)
        bring(i == nullptr ? Span<float const>{} : slots.subspan(k * stride_of(copy) + i->slot_offset(), i->size),
              is_root ? &slots_[k * plan_.slot_stride() + whole.slot_offset()] : nullptr);
    }
  }
  /// Brings each stage its variables and slots from rank 0.
  ///
  /// with_slots   false: of the variables alone
  void scatter(auto& replica, Copy& copy, bool with_slots = true) {
    auto const slots = copy.optimizer.slots();
    auto image       = std::vector<float>{};
    for (std::size_t v = 0; v < plan_.variables.size(); ++v) {
      auto const& whole   = plan_.variables[v];
      auto const* const i = own(copy, v);
      image.resize(whole.size);
      auto const tell = [&](std::vector<float> const& from, std::size_t first, float* to) {
        if (replica.id() == 0) std::copy_n(&from[first], whole.size, image.begin());
        replica.broadcast(Span<float>{image});
        if (to != nullptr) std::ranges::copy(image, to);
      };
      tell(values_, whole.offset, i == nullptr ? nullptr : &copy.net.variables().values[i->offset]);
      for (std::size_t k = 0; with_slots && k < each; ++k)
        tell(slots_, k * plan_.slot_stride() + whole.slot_offset(),
             i == nullptr ? nullptr : &slots[k * stride_of(copy) + i->slot_offset()]);
    }
  }

 private:
  static Rank first_rank_of(int stage) {
    auto rank = Rank{0};
    while (StrategyTraits<S>::coordinate(rank, "stage") != stage) ++rank;
    return rank;
  }
  static std::size_t stride_of(Copy const& copy) { return copy.net.variables().body().size(); }
  /// Variable v of the network in the plan of a stage; null if it is on none of its sections.
  static PlannedVariable const* own(Copy const& copy, std::size_t v) {
    auto const& numbers = copy.learner().variables().of_network;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i] == static_cast<int>(v)) return &copy.net.variables().plan[i];
    return nullptr;
  }

  PlanView plan_;
  std::vector<float> values_, slots_;  // on rank 0
};

}  // namespace chorale::detail
