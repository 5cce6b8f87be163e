// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/filter.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace chorale::data {

/// How workers, each with its own pipeline, share files.
///
///   off         every worker reads everything: for distribute, which deals each batch out
///   file        worker i reads files i, i + workers, and so on; with fewer files than workers some read nothing
///   data        every worker reads all files and keeps element i, i + workers, and so on
///   automatic   file if there is a file for every worker, else data
///
/// source  tf.data.experimental.AutoShardPolicy
enum class AutoShardPolicy { off, file, data, automatic };

/// The worker whose share is read, and the policy.
struct AutoShard {
  int worker = 0, workers = 1;
  AutoShardPolicy policy = AutoShardPolicy::automatic;
};

/// A worker's share of the rows of some files.
///
///   auto const open = [](auto const& mine) { return data::tfrecords(mine); };
///   auto const rows = data::sharded(files, {.worker = 1, .workers = 4}, open);
///
/// open    makes a dataset of a list of files, which may be empty. File numbers in its rows count in this list
/// keeps   the shares of all workers are disjoint, and together all rows; they may be of different sizes, and empty
template <class Open> auto sharded(std::vector<std::filesystem::path> const& files, AutoShard share, Open open) {
  CHORALE_EXPECTS(
      share.workers > 0 && share.worker >= 0 && share.worker < share.workers,
      "sharded: there is no worker " + std::to_string(share.worker) + " of " + std::to_string(share.workers));
  auto const worker = static_cast<std::size_t>(share.worker), workers = static_cast<std::size_t>(share.workers);
  auto const by_file =
      share.policy == AutoShardPolicy::file || (share.policy == AutoShardPolicy::automatic && files.size() >= workers);
  auto mine = std::vector<std::filesystem::path>{};
  for (auto i = by_file ? worker : 0; i < files.size(); i += by_file ? workers : 1) mine.push_back(files[i]);
  using D            = decltype(open(mine));
  auto const by_data = !by_file && share.policy != AutoShardPolicy::off;
  return Ranged<D>{open(mine), by_data ? Every{.first = worker, .step = workers} : Every{}};
}

}  // namespace chorale::data
