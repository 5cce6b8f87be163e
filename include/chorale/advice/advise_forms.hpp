// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/advice/training_form.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/nn/engine/compiled.hpp>
#include <chorale/nn/pipeline/cut.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/pipeline/stage_variables.hpp>
#include <chorale/reduce/predict.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/transport/network_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// What a model is to be trained on.
///
/// ranks                 that compute; servers: further ones that may hold variables
/// memory                bytes of each rank; 0: as many as it takes
/// products_per_second   multiplications with additions of one rank; 0: computing takes no time
/// rows                  of a rank's share of a batch, where each has one
/// boundary_per_row      bytes between two blocks of the model, of one row; 0: not known
struct TrainingCluster {
  int ranks          = 1;
  std::size_t memory = 0;
  NetworkModel network{};
  double products_per_second   = 0;
  std::size_t rows             = 1;
  std::size_t boundary_per_row = 0;
  int micro_batches            = 8;
  int servers                  = 0;
};

/// One row of what advise() says: what a form costs, whether it fits, and why it is chosen or not.
struct FormAdvice {
  FormCost cost;
  bool fits = true;
  std::string why{};
};

/// Forms of training beside one another, in the order of their names; `best` is the index of the one to use.
struct TrainingAdvice {
  std::vector<FormAdvice> forms;
  std::size_t best = 0;
  int ranks        = 1;

  FormAdvice const& chosen() const { return forms[best]; }

  /// A table: memory first, then bytes sent and the predicted time of a step, and why.
  std::string text() const {
    auto made      = std::string{};
    auto const row = [&](std::string_view form, std::string const& memory, std::string const& sent,
                         std::string const& step, std::string const& why) {
      made += formatted("%-18.*s %10s %12s %12s   ", static_cast<int>(form.size()), form.data(), memory.c_str(),
                        sent.c_str(), step.c_str()) +
              why + "\n";
    };
    row("form", "memory", "sent", "step", "");
    for (auto const& one : forms) {
      row(name(one.cost.form), text_of_bytes(one.cost.memory), text_of_bytes(one.cost.sent),
          formatted("%.3g ms", seconds(one.cost.step) * 1e3), one.why);
    }
    return made;
  }
};

namespace detail {

/// What a form sends that others do not, in a few words.
constexpr std::string_view sends_of(TrainingForm form) {
  return std::array<std::string_view, 8>{"one rank makes the steps of all",
                                         "gradients are reduced while backward computes",
                                         "variables are gathered after the update",
                                         "variables are gathered after the update",
                                         "each block is gathered before forward, and again before backward",
                                         "four all-reduces of each boundary, which nothing hides",
                                         "stages wait for the first and the last micro-batches",
                                         "all ranks push and pull"}[static_cast<std::size_t>(form)];
}

}  // namespace detail

/// Compares forms of training, memory first: among the forms that fit, the one with the shortest predicted step.
///
/// keeps   within 1 %, the form that comes first: it is the simpler one. If none fits, the smallest
/// throws  BadArgument for a cluster that makes no sense
inline TrainingAdvice advise(ModelSizes const& sizes, TrainingCluster const& cluster) {
  CHORALE_EXPECTS(cluster.ranks >= 1 && cluster.rows >= 1 && cluster.servers >= 0 && sizes.blocks >= 1 &&
                      sizes.variables > 0 && sizes.micro_batches >= 1,
                  "advice is for 1 rank, row, block, byte and micro-batch or more, not for " +
                      std::to_string(cluster.ranks) + " ranks of " + std::to_string(cluster.rows) + " rows and " +
                      std::to_string(sizes.variables) + " bytes in " + std::to_string(sizes.blocks) + " blocks");
  CHORALE_EXPECTS(sizes.stages.empty() || sizes.stages.size() == static_cast<std::size_t>(cluster.ranks),
                  "advice is for a stage on each rank, not for " + std::to_string(sizes.stages.size()) + " stages on " +
                      std::to_string(cluster.ranks) + " ranks");
  cluster.network.check();
  using enum TrainingForm;
  auto advice      = TrainingAdvice{{}, 0, cluster.ranks};
  auto const times = PredictedTimes{cluster.ranks, cluster.network};
  auto const add   = [&](TrainingForm form, VirtualTime step) {
    auto const cost =
        FormCost{form, memory_of_form(form, sizes, cluster.ranks), sent_by_form(form, sizes, cluster.ranks), step};
    advice.forms.push_back({cost, cluster.memory == 0 || cost.memory <= cluster.memory});
  };
  add(one_device, sizes.compute * cluster.ranks);
  if (cluster.ranks > 1) {
    for (auto const form : {mirrored, zero_one, zero_two, zero_three})
      add(form, step_of_form(form, sizes, cluster.ranks, times));
    if (sizes.boundary != 0) add(tensor_split, step_of_form(tensor_split, sizes, cluster.ranks, times));
    if (!sizes.stages.empty() || (sizes.boundary != 0 && sizes.blocks >= cluster.ranks))
      add(pipeline, step_of_form(pipeline, sizes, cluster.ranks, times));
    if (cluster.servers > 0)
      add(parameter_servers,
          sizes.compute + predicted_servers_time(cluster.ranks, cluster.servers, sizes.variables, cluster.network));
  }
  auto& forms     = advice.forms;
  auto const good = [&](FormAdvice const& a, FormAdvice const& b) {  // a is better than b, which came before it
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.cost.step < b.cost.step - b.cost.step / 100 : a.cost.memory < b.cost.memory;
  };
  for (std::size_t i = 1; i < forms.size(); ++i)
    if (good(forms[i], forms[advice.best])) advice.best = i;
  auto const& best = forms[advice.best];
  for (auto& one : forms) {
    auto const excess = one.cost.memory > cluster.memory ? one.cost.memory - cluster.memory : 0;
    if (!one.fits) one.why = text_of_bytes(excess) + " too much";
    else if (&one == &best) one.why = "chosen: ";
    else if (one.cost.step > best.cost.step + best.cost.step / 100) one.why = "slower: ";
    else one.why = "not faster by 1 %: ";
    if (one.fits) one.why += detail::sends_of(one.cost.form);
    else if (&one == &best) one.why += ", and the least of all";
  }
  return advice;
}

/// The sizes of a model as the functions above need them.
///
/// device   that computes: kernels are asked for their workspaces
template <class M, class D> ModelSizes sizes_of(M const& model, TrainingCluster const& cluster, D const& device) {
  auto const plan   = PlanView{model.plan};
  auto const memory = memory_of(model, cluster.rows, device);
  auto sizes        = ModelSizes{.variables     = memory.variables,
                                 .slots         = std::remove_cvref_t<decltype(model.optimizer)>::slots,
                                 .activations   = memory.activations.value_or(0),
                                 .boundary      = cluster.boundary_per_row * cluster.rows,
                                 .micro_batches = cluster.micro_batches};
  auto layer        = -1;
  sizes.blocks      = 0;
  for (auto const& v : plan.variables)
    if (v.layer != layer) layer = v.layer, ++sizes.blocks;
  sizes.blocks = std::max(1, sizes.blocks);
  if constexpr (requires { model.plan.products_per_row; })
    if (cluster.products_per_second > 0)
      sizes.compute = virtual_seconds(3 * static_cast<double>(model.plan.products_per_row * cluster.rows) /
                                      cluster.products_per_second);
  return sizes;
}

namespace detail {

/// The stages in which a pipeline cuts a model; none for a model that is not a network derived from nn::Graph.
template <class M> struct StagesOf {
  template <class D> static std::vector<StageSizes> of(int, std::size_t) { return {}; }
};
template <class Net, class Losses, class Optimizer, class Metrics>
struct StagesOf<nn::CompiledGraph<Net, Losses, Optimizer, Metrics>> {
  /// One section for each stage, cut as MeshStrategy{mesh, pipelined<..>()} does. None if it refuses the network.
  ///
  /// rows   of one rank
  template <class D> static std::vector<StageSizes> of(int stages, std::size_t rows) {
    namespace graph = nn::graph;
    auto made       = std::vector<StageSizes>{};
    if constexpr (std::is_same_v<D, Cpu>) {
      if (graph::has_ragged(graph::Traced<Net, graph::NoDevice>::calls) || nn::plan_of<Net>.table_elements != 0)
        return made;
      auto const whole = graph::whole_of<Net, D>();
      auto const cut   = graph::cut_of(whole.g, graph::Traced<Net, graph::NoDevice>::calls.cuts, stages);
      if (cut.flaw != graph::CutFlaw::none) return made;
      made.resize(static_cast<std::size_t>(stages));
      for (std::size_t v = 0; v < whole.variables.size(); ++v)
        for (auto const x : graph::users_of(whole, cut.ends, static_cast<int>(v)))
          made[static_cast<std::size_t>(x)].variables +=
              sizeof(float) * plan::aligned(nn::plan_of<Net>.variables[v].size);
      auto products = std::size_t{0};
      for (auto const& call : whole.g.calls) products += call.products;
      auto const schedule = graph::Scheduler{whole.g, whole.trains}.schedule();
      for (int x = 0; x < stages; ++x) {
        auto& stage        = made[static_cast<std::size_t>(x)];
        auto const section = graph::Section{whole, schedule, cut.ends, x};
        auto const range   = section.range();
        for (int c = range.first; c < range.second; ++c)
          stage.products += static_cast<double>(whole.g.calls[static_cast<std::size_t>(c)].products);
        stage.products  = products == 0 ? 1.0 / stages : stage.products / static_cast<double>(products);
        auto const size = [&](graph::Crossing const& one) {
          return rows * whole.g.values[static_cast<std::size_t>(one.value)].bytes;
        };
        for (auto const& one : section.arrivals()) stage.returns += one.number ? size(one) : 0;
        auto sent = std::vector<std::pair<int, int>>{};  // a value, and the section that gets it, once
        for (auto const& one : section.departures()) {
          auto const to = std::pair{one.value, one.other};
          if (one.other == x || std::ranges::count(sent, to) != 0) continue;
          sent.push_back(to);
          stage.passes += size(one);
        }
      }
    }
    return made;
  }
};

}  // namespace detail

/// Compares forms of training for a model on a cluster, as a table with reasons. See the forms' names. The stages of a
/// pipeline are those in which a network derived from nn::Graph is cut, with their variables, products and messages.
///
///   std::cout << advise(model, {.ranks = 8, .memory = 80'000'000'000, .products_per_second = 50e12}, Cpu{}).text();
template <class M, class D> requires requires(M const& model) { model.optimizer; }
TrainingAdvice advise(M const& model, TrainingCluster const& cluster, D const& device) {
  auto const stages = detail::StagesOf<M>::template of<D>(cluster.ranks, cluster.rows);
  auto sizes        = sizes_of(model, cluster, device);
  sizes.stages      = stages;
  return advise(sizes, cluster);
}

}  // namespace chorale
