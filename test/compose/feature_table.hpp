// SPDX-License-Identifier: Apache-2.0
//
// What each feature does under each strategy. features_test.cpp and features_test.py hold it against the library, and
// test/docs/compose_test.cpp prints it into docs/30-compose.md.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace chorale::test::features {

struct Column {
  std::string_view name;  // in namespace columns
  std::string_view text;
};
inline constexpr auto columns = std::array{
    Column{"mirrored", "`MirroredStrategy`"},
    Column{"by_ring", "`MirroredStrategy`, a ring"},
    Column{"central_storage", "`CentralStorageStrategy`"},
    Column{"workers", "`MultiWorkerMirroredStrategy`"},
    Column{"local_sgd", "`local_sgd<1>`"},
    Column{"gossip", "`Gossip`"},
    Column{"synchronous", "servers, `Synchronous`"},
    Column{"bounded", "servers, `BoundedStaleness<0>`"},
    Column{"backup", "servers, `BackupWorkers<0>`"},
    Column{"asynchronous", "servers, `Asynchronous`"},
    Column{"zero_one", "`ShardedStrategy<Zero::one>`"},
    Column{"zero_two", "`ShardedStrategy<Zero::two>`"},
    Column{"zero_three", "`ShardedStrategy<Zero::three>`"},
    Column{"hybrid", "`HybridStrategy<Zero::three, 2>`"},
    Column{"mesh", "`MeshStrategy`"},
    Column{"mesh_shards", "`MeshStrategy`, `Zero::one`"},
    Column{"stages", "`pipelined<..>`"},
    Column{"tpu", "`TPUStrategy<2>`"},
    Column{"tpu_shards", "`TPUStrategy<2, Zero::one>`"},
    Column{"hosts_of_tpus", "workers with `Pjrt`"},
};

struct Row {
  std::string_view name;  // in namespace features
  std::string_view text;
  std::string_view cells;  // "=": the same bits, "~": but for rounding,
};  // "3": refused by the compiler with sentence
    // 3; "3t": by an exception, if what is wrong
constexpr auto thrown = 't';  // is known when the program runs

inline constexpr auto rows = std::array{
    Row{"fit", "`fit`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"evaluate", "`evaluate`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"predict", "`predict`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"accumulate", "`FitOptions::accumulate`", "~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~ ~"},
    Row{"steps_per_epoch", "`FitOptions::steps_per_epoch`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"clip", "`global_clipnorm`", "= ~ = = ~ ~ 1t = 1t 1t = = = = = = = ~ ~ ~"},
    Row{"schedule", "a schedule of the learning rate", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"set_rate", "`set_learning_rate`", "= ~ = = ~ ~ 2 2 2 2 = = = = = = = ~ ~ ~"},
    Row{"callbacks", "callbacks, `stop`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"early_stopping", "`EarlyStopping`, `validate_on`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"resume", "a checkpoint, and resume", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"resume_of_one", "resume from that of one device", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"weights", "`save`, `load` of weights", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"load_checkpoint", "`load` of a checkpoint", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"retargeted", "`retarget` to one device", "= ~ = = ~ ~ 3 3 3 3 = = = = = = 4 ~ ~ ~"},
    Row{"online", "`OnlineTraining`", "= ~ = = 5 5 5 5 5 5 = = = = 5 5 5 ~ ~ ~"},
    Row{"own_loop", "a loop of one's own", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"two_models", "two models in one loop", "= ~ = = ~ ~ 6t 6t 6t 6t = = = = = = = ~ ~ ~"},
    Row{"sequential", "`nn::Sequential`", "= ~ = = ~ ~ = = ~ ~ = = = = = = 7 ~ ~ ~"},
    Row{"in_bf16", "`nn::Precision<bf16>`", "= ~ = = ~ ~ = = ~ ~ = = = = = = 7 ~ ~ ~"},
    Row{"loss_scaled", "`optim::LossScaled`, in fp16", "= ~ = = ~ ~ 8 8 8 8 = = = = = = 7 ~ 27t ~"},
    Row{"adam", "`optim::Adam`, clipped", "= ~ = = ~ ~ 1t = 1t 1t = = = = = = = ~ ~ ~"},
    Row{"grouped", "`optim::Grouped`, `frozen`", "= ~ = = ~ ~ 9 9 9 9 = = = = = = = ~ 27t ~"},
    Row{"averaged", "`optim::Averaged`", "= ~ = = ~ ~ = = ~ ~ 10 10 10 10 = 10 = ~ 27t ~"},
    Row{"batch_norm", "`nn::BatchNorm`", "= ~ = = ~ ~ 11t 11t 11t 11t = = = = = = = ~ ~ ~"},
    Row{"sync_batch_norm", "`nn::SyncBatchNorm`", "~ ~ ~ ~ 24 24 12 12 12 12 ~ 13 13 13 ~ ~ 14 ~ ~ 29t"},
    Row{"dropout", "`nn::Dropout`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"recompute", "`nn::Recompute`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"outputs", "several outputs", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"row_weights", "weights of rows", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"class_weights", "`loss::Weighted`, weights of classes", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"state_metric", "a metric with a state", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"ragged", "ragged rows", "= ~ = = ~ ~ = = ~ ~ = = = = = = 15 16 16 16"},
    Row{"per_position", "`loss::per_position`", "= ~ = = ~ ~ = = ~ ~ = = = = = = 15 16 16 16"},
    Row{"table", "a table, gradients by rows", "= ~ = = ~ ~ = = ~ ~ 26t 17 17 17 = 26t 18 ~ 28t ~"},
    Row{"dense_table", "a table, `nn::DenseGradient`", "= ~ = = ~ ~ = = ~ ~ = = = = = = = ~ ~ ~"},
    Row{"split", "layers split along an axis", "19 19 19 19 19 19 19 19 19 19 19 19 19 19 = = 20 21 21 21"},
    Row{"dealt", "a table dealt along an axis", "19 19 19 19 19 19 19 19 19 19 19 19 19 19 = 26t 18 21 21 21"},
    Row{"custom", "`custom_model`", "= ~ 25 = ~ ~ = = ~ ~ = 22 22 22 = = 7 23 23 23"},
};

/// What the compiler says, by the numbers of cells: its errors contain it.
inline constexpr auto sentences = std::array{
    std::string_view{"chorale: global_clipnorm needs the norm of all gradients, but each of 2 servers has its "
                     "shard only"},
    std::string_view{"chorale: under ParameterServerStrategy the servers apply the optimizer, and a worker cannot "
                     "set its learning rate. A schedule of the optimizer works there"},
    std::string_view{"chorale: retarget moves the variables of replicas, but under ParameterServerStrategy servers "
                     "have them. Save a checkpoint, and resume from it under the other strategy"},
    std::string_view{"chorale: retarget moves copies of a whole network, but under pipelined<Schedule>() each rank "
                     "has a stage of it. Save a checkpoint, and resume from it under the other strategy"},
    std::string_view{"chorale: OnlineTraining needs a Strategy whose replicas each have rows of their own, and add "
                     "up their gradients in every step. Use MirroredStrategy, MultiWorkerMirroredStrategy or "
                     "ShardedStrategy"},
    std::string_view{"chorale: servers hold the variables of one model, and create() was called for a second one"},
    std::string_view{"chorale: a pipeline cuts a network that is derived from nn::Graph, and this model is none. "
                     "Put the layers of a Sequential in an nn::Block of a Graph"},
    std::string_view{"chorale: optim::LossScaled does not run under ParameterServerStrategy, whose servers do not "
                     "know by what a worker has scaled its loss. Use MultiWorkerMirroredStrategy"},
    std::string_view{"chorale: optim::Grouped does not run under ParameterServerStrategy, whose servers do not "
                     "know the names of variables. Use MultiWorkerMirroredStrategy"},
    std::string_view{"chorale: optim::Averaged keeps averages of all variables beside them, but under "
                     "ShardedStrategy a replica keeps a shard of its state. Use MultiWorkerMirroredStrategy"},
    std::string_view{"chorale: servers apply an optimizer, which does not move norm/moving_mean, a moving average "
                     "with momentum"},
    std::string_view{"chorale: nn::SyncBatchNorm does not run under ParameterServerStrategy, whose workers do not "
                     "wait for one another in a step. Use MultiWorkerMirroredStrategy"},
    std::string_view{"chorale: nn::SyncBatchNorm adds up over all replicas in the middle of a step, in which units "
                     "are on their way under ShardedStrategy<Zero::two> and <Zero::three>. Use nn::BatchNorm, or "
                     "Zero::one"},
    std::string_view{"chorale: nn::SyncBatchNorm adds up over all rows of a batch, and a pipeline computes "
                     "micro-batches. Use nn::BatchNorm"},
    std::string_view{"chorale: a pipeline takes rows of one shape. Give the fields of this network one length"},
    std::string_view{"chorale: a network with rows of different lengths does not compute on PJRT devices. Give its "
                     "fields one length, or use a strategy over Cpu"},
    std::string_view{"chorale: under ShardedStrategy a replica has a shard of all variables, and the gradients of "
                     "a table of this network are rows. Write nn::Embedding<rows, width, nn::DenseGradient>, or "
                     "use MultiWorkerMirroredStrategy"},
    std::string_view{"chorale: a pipeline has no gradients that are rows of a table. Write nn::Embedding<rows, "
                     "width, nn::DenseGradient>, or use MirroredStrategy"},
    std::string_view{"chorale: a layer of this network is split over several ranks along an Axis, and this "
                     "Strategy has no such ranks. Use MeshStrategy with a Mesh that has the Axis"},
    std::string_view{"chorale: a layer of this network is split over several ranks along an Axis, and a pipeline "
                     "computes each stage on one rank. Use layers that are not split, or MeshStrategy without "
                     "pipelined<Schedule>()"},
    std::string_view{"chorale: this layer is not written in operations of StableHLO, so no PJRT device computes "
                     "it. Use layers that docs/46-tpu.md lists, specialise nn::stablehlo::Lowering, or use a "
                     "strategy over Cpu"},
    std::string_view{"chorale: under ShardedStrategy<Zero::two> and <Zero::three> the layers of a network take "
                     "turns in a few buffers, and a model without layers reads any variable at any time. Use "
                     "ShardedStrategy<Zero::one>, or a network of nn"},
    std::string_view{"chorale: this model computes on host memory, but the strategy computes on another device. "
                     "Use a strategy over Cpu"},
    std::string_view{"chorale: SyncBatchNorm needs all replicas in every step, but under this Strategy they learn "
                     "apart. Use nn::BatchNorm, or MirroredStrategy or MultiWorkerMirroredStrategy"},
    std::string_view{"chorale: under CentralStorageStrategy replicas read the variables of the first one in place, "
                     "and this model has no instantiate_reader(device, owner) for it. Use MirroredStrategy"},
    std::string_view{"chorale: optim::SGD updates a shard of all variables, but the gradient of table/embeddings "
                     "is rows"},
    std::string_view{"chorale: cores with shards of the optimizer's state take rules that update each number by "
                     "itself and are written in operations"},
    std::string_view{"chorale: cores with shards of the optimizer's state take gradients that are dense, but that "
                     "of table/embeddings is rows"},
    std::string_view{"chorale: nn::SyncBatchNorm adds up over all rows of a batch, and on PJRT devices over those "
                     "of one rank"},
};

/// The cell of a feature and a strategy, by their names; empty if there is none.
constexpr std::string_view cell_of(std::string_view feature, std::string_view column) {
  for (auto const& row : rows) {
    if (row.name != feature) continue;
    auto rest = row.cells;
    for (auto const& one : columns) {
      auto const cell = rest.substr(0, rest.find(' '));
      if (one.name == column) return cell;
      rest.remove_prefix(rest.size() == cell.size() ? cell.size() : cell.size() + 1);
    }
  }
  return {};
}

/// The sentence whose number a cell has.
constexpr std::string_view sentence_of(std::string_view cell) {
  auto number = std::size_t{0};
  for (auto const c : cell)
    if (c >= '0' && c <= '9') number = 10 * number + static_cast<std::size_t>(c - '0');
  return number == 0 || number > sentences.size() ? std::string_view{} : *(sentences.begin() + number - 1);
}

}  // namespace chorale::test::features
