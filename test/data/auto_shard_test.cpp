// SPDX-License-Identifier: Apache-2.0
#include "folder.hpp"

#include <chorale/data/auto_shard.hpp>
#include <chorale/data/formats/files.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

using namespace chorale;
using data::AutoShardPolicy;

namespace {

/// The lines of one worker's share.
std::vector<std::string> lines(std::vector<std::filesystem::path> const& files, data::AutoShard share) {
  auto const rows = data::sharded(files, share, [](auto const& mine) { return data::text_lines(mine); });
  auto stream     = rows.stream(0);
  auto all        = std::vector<std::string>{};
  for (Sample<char, std::uint64_t> row; stream.next(row);) all.emplace_back(row.x.begin(), row.x.end());
  return all;
}

}  // namespace

TEST_CASE("the shares of all workers are all rows once, by every policy, also where some are empty", "[data][shard]") {
  auto const folder = sources::Folder{};
  auto files        = std::vector<std::filesystem::path>{};
  auto expected     = std::vector<std::string>{};
  for (std::size_t f = 0; f < 5; ++f) {
    auto text = sources::Content{};
    for (std::size_t i = 0; i < 2 * f; ++i) {  // the first one is empty
      auto const line = std::to_string(f) + " " + std::to_string(i);
      text.insert(text.end(), line.begin(), line.end());
      text.push_back('\n');
      expected.push_back(line);
    }
    files.emplace_back(folder.plain("file-" + std::to_string(f), text));
  }
  std::sort(expected.begin(), expected.end());
  for (auto const policy : {AutoShardPolicy::file, AutoShardPolicy::data, AutoShardPolicy::automatic})
    for (int const workers : {1, 2, 3, 4, 8}) {
      CAPTURE(static_cast<int>(policy), workers);
      auto together = std::vector<std::string>{};
      auto empty    = 0;
      for (int worker = 0; worker < workers; ++worker) {
        auto const mine = lines(files, {worker, workers, policy});
        empty += mine.empty();
        together.insert(together.end(), mine.begin(), mine.end());
      }
      std::sort(together.begin(), together.end());
      CHECK(together == expected);
      if (policy == AutoShardPolicy::file) CHECK(empty == (workers == 8 ? 4 : 0));
    }
  auto const all = lines(files, {});
  CHECK(lines(files, {1, 3, AutoShardPolicy::off}) == all);
  CHECK(lines(files, {1, 3, AutoShardPolicy::automatic}) == lines(files, {1, 3, AutoShardPolicy::file}));
  CHECK(lines(files, {1, 8, AutoShardPolicy::automatic}) == lines(files, {1, 8, AutoShardPolicy::data}));
  CHECK(lines(files, {1, 3, AutoShardPolicy::file}) != lines(files, {1, 3, AutoShardPolicy::data}));
}

TEST_CASE("a worker that is none of them is refused", "[data][shard]") {
  CHECK_THROWS_WITH(lines({}, {.worker = 3, .workers = 3}), Catch::Matchers::Contains("no worker 3 of 3"));
  CHECK_THROWS_AS(lines({}, {.worker = -1, .workers = 3}), BadArgument);
  CHECK_THROWS_AS(lines({}, {.worker = 0, .workers = 0}), BadArgument);
}
