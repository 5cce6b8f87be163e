// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>

namespace chorale {

/// The all-reduce that the transport has of its own. It blocks. See CollectiveTransport.
///
/// cost    the transport's; as many bytes as any all-reduce must send, at least
/// order   the transport's: whether all ranks have the same bits is its promise, not ours
struct NativeAllReduce {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = ranks > 1 ? 1 : 0, .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes /
                                                 static_cast<std::size_t>(ranks)};
  }

  template <Endpoint E, Reducible T>
    requires requires(E& at, Span<T> x, Op op) { at.all_reduce(x, op); }
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    announce(at, {Collective::all_reduce, op, element_of<T>, x.size(), tag, where});
    at.all_reduce(x, op);
  }
};

}  // namespace chorale
