// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/tensor/variable.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace chorale {

/// What a copy of a model reports to all replicas with the gradients of a step, in their StepTrailer: which variable
/// has a gradient that is not finite, whether the process was asked to end, and a digest of the variables. The base of
/// every copy of a model.
class StepReports {
 public:
  Rank rank                             = 0;        // of the replica; for errors
  int compare_every                     = 100;      // steps; 0: never. See Replica::all_reduce
  std::atomic<bool> const* asked_to_end = nullptr;  // null: never asked. See EndOnSignal

 protected:
  /// Returns a different number for each copy of any model in this program. See Gradients::owner.
  static std::uint64_t next_owner() {
    static auto last = std::atomic<std::uint64_t>{0};
    return ++last;
  }

  bool is_asked() const { return asked_to_end != nullptr && asked_to_end->load(); }
  void report_asked(Gradients const& g) const { g.trailer().asked() = is_asked() ? 1.0F : 0.0F; }

  /// Writes whether this replica was asked to end and, every `compare_every` steps, the digest of its variables.
  ///
  /// step      number of the step; 0-based
  void report(Gradients const& g, std::int64_t step, Span<float const> variables) const {
    report_asked(g);
    if (compare_every > 0 && step % compare_every == 0) ReplicaDigest::write(hash_of(variables), g.trailer().digest());
  }

  void report_bad(Gradients const& g, std::size_t variable) const {
    g.trailer().faults()   = 1;
    g.trailer().rank()     = static_cast<float>(rank);
    g.trailer().variable() = static_cast<float>(variable);
  }

  /// Writes which variable in [begin, end) is the first whose gradient is not finite, if one is. Only the first call
  /// that finds one writes.
  template <class D> void report_non_finite(Gradients const& g, std::size_t begin, std::size_t end) const {
    if (g.trailer().faults() != 0 || Kernels<D>::finite(g.values.subspan(begin, end - begin))) return;
    for (std::size_t i = 0; i < g.plan.size(); ++i)
      if (g.plan[i].offset >= begin && g.plan[i].offset < end && !Kernels<D>::finite(g[i])) return report_bad(g, i);
  }

  /// Writes which table is the first whose gradient is not finite, if one is and no variable was reported.
  template <class D> void report_non_finite_rows(Gradients const& g) const {
    for (auto const& table : g.tables)
      if (g.trailer().faults() == 0 && !Kernels<D>::finite(table.values())) report_bad(g, table.variable());
  }

  /// Writes which variable has the bad element, if there is one.
  void report_bad_element(Gradients const& g, std::optional<std::size_t> bad) const {
    for (std::size_t i = 0; bad && i < g.plan.size(); ++i)
      if (*bad >= g.plan[i].offset && *bad < g.plan[i].end()) return report_bad(g, i);
  }
};

}  // namespace chorale
