// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/peer.hpp"
#include "test/support/one_call.hpp"

#include <chorale/nn/parallel/experts.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/nn/parallel/sharded_tables.hpp>
#include <chorale/reduce/collectives/sparse_rows.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace chorale::test {

using FuzzIds    = nn::Of<int, 2>;
using FuzzToken  = nn::Of<float, 4>;
using FuzzTables = Axis<"tables", 2>;

/// A step of one rank with a layer whose other rank says anything.
template <class Layer, class... In> void fuzz_layer(ConstBytes in, std::vector<typename In::type> const&... x) {
  auto other        = StrangeGroup{in};
  auto const groups = std::array{other.group(FuzzTables::name)};
  auto call         = OneCall<Layer, In...>{};
  for (std::size_t i = 0; i < call.v.size(); ++i) std::ranges::fill(call.v[i], 0.5F);
  call.read(2, x...);
  may_refuse([&] {
    call.forward(groups);
    for (auto& d : call.dy) std::ranges::fill(d, 1.0F);
    call.backward();
  });
  for (auto const& rows : call.rows_of)
    if (rows)
      for (auto const row : rows->rows()) must(row < rows->table_rows(), "a row that the table does not have");
}

/// Rows of gradients that ranks gather, whose other ranks say anything.
inline void fuzz_gather(ConstBytes in) {
  auto at         = StrangeEndpoint{0, 2, in};
  auto const rows = std::array<std::uint32_t, 2>{3, 0}, vectors = std::array<std::uint32_t, 2>{1, 0};
  auto const values = std::array<float, 6>{};
  auto gather       = RowGather<StrangeEndpoint>{};
  may_refuse([&] {
    gather.gather(at, rows, vectors, values, {.rows = 5, .width = 3}, Tag{});
    for (auto const row : gather.rows()) must(row < 5, "a row that the table does not have");
    for (auto const vector : gather.vectors()) must(3 * (vector + 1) <= gather.values().size(), "a vector of nobody");
  });
}

/// Any bytes, as what another rank says of rows of tables, of tokens for experts, and of rows of gradients.
inline void fuzz_peer_rows(ConstBytes in) {
  if (in.empty()) return;
  auto const said = in.subspan(1);
  auto const ids  = std::vector<int>{0, 7, 5, 1};
  switch (std::to_integer<int>(in[0]) % 6) {
    case 0: return fuzz_layer<nn::ShardedEmbeddingBag<FuzzTables, 9, 3>, FuzzIds>(said, ids);
    case 1: return fuzz_layer<nn::ShardedEmbedding<FuzzTables, 9, 3, nn::ByRowInTurn>, FuzzIds>(said, ids);
    case 2:
      return fuzz_layer<nn::ShardedEmbeddingBag<FuzzTables, 9, 4, nn::Bag::sum, nn::ByColumn>, FuzzIds>(said, ids);
    case 3: return fuzz_layer<nn::ShardedTables<FuzzTables, 3, nn::TableRows<8, 9>>, FuzzIds, FuzzIds>(said, ids, ids);
    case 4:
      return fuzz_layer<nn::Experts<FuzzTables, 4, 3>, FuzzToken>(said, std::vector<float>{1, 2, -1, 0, 3, 1, 2, 5});
    default: return fuzz_gather(said);
  }
}

}  // namespace chorale::test
