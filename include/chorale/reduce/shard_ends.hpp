// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale {

/// Where the shards of ranks lie in one buffer: rank r has the elements from ends[r - 1] to ends[r].
struct ShardEnds {
  Span<float> buffer;
  std::vector<std::size_t> ends;

  /// Writes where the shards end within a part of the buffer: empty ones where they begin.
  void clip(Range part, std::vector<std::size_t>& to) const {
    to.clear();
    for (auto const end : ends) to.push_back(std::clamp(end, part.begin, part.end) - part.begin);
  }
};

}  // namespace chorale
