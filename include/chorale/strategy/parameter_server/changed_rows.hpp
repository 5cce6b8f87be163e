// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chorale::parameter_server {

/// Rows of a table in the order of their last change, so that those which a worker lacks are found without a look at the
/// others.
///
///   newest ─▶ row 7 (version 12) ─▶ row 3 (12) ─▶ row 19 (11) ─▶ ..         since version 11: rows 7 and 3
///
/// keeps   16 bytes for each row of the table; nothing is allocated after the constructor
/// cost    of a change, of a row found: a time that does not depend on the size of the table
class ChangedRows {
 public:
  explicit ChangedRows(std::size_t rows) : entries_(rows) {}

  /// Records that a row is changed in a version: 1 or more, and not below the version of any change before.
  void touch(std::size_t row, std::uint64_t version) {
    auto& entry = entries_[row];
    if (entry.version == version) return;
    if (entry.version != 0) unlink(entry);
    entry   = {version, none, newest_};
    newest_ = static_cast<std::uint32_t>(row);
    if (entry.older != none) entries_[entry.older].newer = newest_;
  }

  /// Asks the memory for a row that is touched soon.
  void fetch(std::size_t row) const { __builtin_prefetch(&entries_[row], 1); }

  /// Calls f(row) for each row that was changed after a version.
  template <class F> void each_since(std::uint64_t version, F&& f) const {
    for (auto row = newest_; row != none && entries_[row].version > version; row = entries_[row].older) f(row);
  }

 private:
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();

  struct Entry {
    std::uint64_t version = 0;  // 0: never changed, in no list
    std::uint32_t newer = none, older = none;
  };

  void unlink(Entry const& entry) {
    (entry.newer == none ? newest_ : entries_[entry.newer].older) = entry.older;
    if (entry.older != none) entries_[entry.older].newer = entry.newer;
  }

  std::vector<Entry> entries_;
  std::uint32_t newest_ = none;
};

}  // namespace chorale::parameter_server
