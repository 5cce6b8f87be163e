// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/auto_shard.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/runtime/same_lines.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/per_replica.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace chorale {

namespace detail {

/// The files and the policy of a share in lines that ranks compare, with what they have alike.
inline std::vector<std::string> shard_lines(std::vector<std::filesystem::path> const& files, data::AutoShard share) {
  auto const policy = [&]() -> std::string {
    switch (share.policy) {
      case data::AutoShardPolicy::off: return "off";
      case data::AutoShardPolicy::file: return "file";
      case data::AutoShardPolicy::data: return "data";
      case data::AutoShardPolicy::automatic: break;
    }
    return "automatic";
  }();
  auto lines = std::vector<std::string>{"workers " + std::to_string(share.workers), "policy " + policy,
                                        "files " + std::to_string(files.size())};
  for (std::size_t i = 0; i < files.size(); ++i)
    lines.push_back(std::to_string(i) + ": " + data::detail::file_text(files[i]));
  return lines;
}

template <class S> constexpr bool expect_waiting() {
  static_assert(!HasServers<S>,
                "chorale: under ParameterServerStrategy workers do not wait for one another, so that "
                "they cannot compare their data. Compare data::checksum(files) in the program's own "
                "log, or use a strategy whose replicas train together");
  return !HasServers<S>;
}

}  // namespace detail

/// Compares between all ranks a dataset that every process is about to distribute(), as fit does when it begins. Every
/// process calls it, in a loop of the program's own before its first pass.
///
///   expect_same_data(live, train);
///   for (auto& shares : live.distribute(train)) ..
///
/// cost    one all-gather of 16 bytes a rank; nothing is sent if one process has all replicas
/// throws  Disagreement with Fault::model_mismatch on all ranks, with the first stage that differs and both values
template <class S, class R, class T, Dataset Data> void expect_same_data(Live<S, R, T>& live, Data const& data) {
  if constexpr (detail::expect_waiting<S>())
    detail::expect_same_lines(live, live.num_local_replicas(), detail::data_lines(data));
}

/// Checks that data::sharded gives all files to all processes, each row to one of them: that they have the same list of
/// files and the same policy, and that each worker's share is read by one process. Every process calls it, in a loop of
/// the program's own before its first pass.
///
///   expect_same_shards(live, files, share);
///   auto const rows = data::sharded(files, share, open).batch(64);
///
/// files   in the order in which sharded gets them; their names without folders, and their sizes, are compared
/// cost    a look at the size of each file, and two all-gathers of at most 16 bytes a rank
/// throws  Disagreement with Fault::model_mismatch on all ranks: with the first file that differs and both values, or
///         with the share that no process or more than one reads
template <class S, class R, class T>
void expect_same_shards(Live<S, R, T>& live, std::vector<std::filesystem::path> const& files, data::AutoShard share) {
  if constexpr (detail::expect_waiting<S>()) {
    auto const replicas = live.num_local_replicas();
    auto const advice   = std::string{
        "the same list of files in the same order on every rank, and in each process its "
          "own worker of as many as there are processes."};
    detail::expect_same_lines(live, replicas, detail::shard_lines(files, share), advice);
    if (share.policy == data::AutoShardPolicy::off) return;  // every worker reads everything

    struct Reader {
      std::int32_t worker;
      Rank process;  // the first of its ranks
    };
    auto const mine    = Reader{share.worker, live.local_replica(0).id()};
    auto const readers = live.gather(PerReplica{std::vector<Reader>(replicas, mine)});
    for (int worker = 0; worker < share.workers; ++worker) {
      auto const reads = [&](Reader const& reader) { return reader.worker == worker; };
      auto const first = std::ranges::find_if(readers, reads);
      auto const of    = std::to_string(worker) + " of " + std::to_string(share.workers);
      if (first == readers.end())
        throw Disagreement{Fault::model_mismatch, "no rank reads share " + of + ", so that its rows are missing.",
                           advice};
      auto const second = std::find_if(first, readers.end(), [&](Reader const& reader) {
        return reads(reader) && reader.process != first->process;
      });
      if (second != readers.end())
        throw Disagreement{Fault::model_mismatch,
                           "rank " + std::to_string(first->process) + " and rank " + std::to_string(second->process) +
                               ", of two processes, both read share " + of + ", so that its rows come twice.",
                           advice};
    }
  }
}

}  // namespace chorale
