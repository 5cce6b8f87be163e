// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/property.hpp"

#include <chorale/cluster/resolvers/tf_config.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace chorale::test {

/// Every byte is one that a terminal shows; an error may have two lines.
inline void must_be_shown(std::string_view text, std::ptrdiff_t lines) {
  must(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }), "a byte is not shown");
  must(std::ranges::count(text, '\n') < lines, "there are too many lines");
  must(text.size() < 2'000, "a text is too long to read");
}

/// Runs body; of its errors only BadArgument is one.
template <class Body> void or_bad_argument(Body body) {
  try {
    body();
  } catch (BadArgument const& error) { must_be_shown(error.what(), 3); }
}

/// A cluster in JSON, with the index of every task written out.
inline std::string json_of(Cluster const& cluster) {
  auto json = std::string{};
  for (auto const role : {Role::chief, Role::worker, Role::ps, Role::evaluator}) {
    auto tasks = std::string{};
    for (auto const& task : cluster.tasks())
      if (task.id.role == role)
        tasks += (tasks.empty() ? "\"" : ", \"") + std::to_string(task.id.index) + "\": \"" + task.address + "\"";
    json += (json.empty() ? "\"" : ", \"") + std::string{name(role)} + "\": {" + tasks + "}";
  }
  return R"({"cluster": {)" + json + R"(}, "task": {"type": ")" + std::string{name(cluster.task().role)} +
         R"(", "index": )" + std::to_string(cluster.task().index) + "}}";
}

inline void check_cluster(Cluster const& cluster) {
  must_be_shown(cluster.text(), 1);
  must(cluster.workers() >= 1 && cluster.servers() >= 0, "a cluster without a worker");
  must(cluster.lines().size() == cluster.addresses().size(), "a rank without a line");
  if (cluster.is_member()) must(cluster.group().local().front() == cluster.rank(), "a rank is not its own");
  must(cluster.local_rank() < cluster.local_size(), "a local rank that is not below its size");
}

/// Any bytes, as TF_CONFIG and as CHORALE_CLUSTER. What is a cluster is the same one when it is written and read again.
inline void fuzz_tf_config(ConstBytes in) {
  auto const text = std::string{reinterpret_cast<char const*>(in.data()), in.size()};
  or_bad_argument([&] {
    auto const parts = resolve::tf_config(text);
    if (!parts) return;
    auto const cluster = Cluster{*parts};
    check_cluster(cluster);
    auto const again = Cluster{*resolve::tf_config(json_of(cluster))};
    must(again.tasks() == cluster.tasks() && again.task() == cluster.task(), "what was written is another cluster");
  });
  or_bad_argument([&] {
    auto const parts = resolve::own_variables(Environment{{"CHORALE_CLUSTER", text}}, 0);
    if (parts) check_cluster(Cluster{*parts});
  });
  or_bad_argument([&] { resolve::task_named(text); });
}

}  // namespace chorale::test
