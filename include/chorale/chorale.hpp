// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a training program of one process includes, from the lowest layer to the highest; docs/20-layers.md has the
/// picture. Other programs include one of these beside it, or in its place:
///
///   <chorale/processes.hpp>   several processes: Cluster, TcpTransport, SharedMemoryTransport, parameter servers
///   <chorale/parallel.hpp>    a model over several ranks: shards, meshes, pipelines, split layers, experts
///   <chorale/solver.hpp>      training beside a simulation: online rows, derivatives of networks, jobs that change size
///   <chorale/advice.hpp>      what a step would take: time, bytes, memory
///   <chorale/text.hpp>        tokenizers
///   <chorale/pjrt.hpp>        TPUs, and other plug-ins of PJRT
///
/// fwd.hpp declares what they have, so that an error about a missing one names its header.

#include <chorale/config.hpp>
#include <chorale/fwd.hpp>

#include <chorale/core/check.hpp>
#include <chorale/core/end_on_signal.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/fraction.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>

#include <chorale/observe/progress.hpp>

#include <chorale/device/cpu.hpp>
#include <chorale/device/device.hpp>

#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/shape.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <chorale/transport/local.hpp>
#include <chorale/transport/tcp_header.hpp>
#include <chorale/transport/transport.hpp>

#include <chorale/checkpoint/safetensors.hpp>
#include <chorale/checkpoint/weights.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/data/digits.hpp>
#include <chorale/data/formats/csv.hpp>
#include <chorale/data/formats/idx.hpp>
#include <chorale/data/formats/npz.hpp>
#include <chorale/data/shapes.hpp>
#include <chorale/data/validation_split.hpp>
#include <chorale/data/windows.hpp>
#include <chorale/optim/adagrad.hpp>
#include <chorale/optim/adam.hpp>
#include <chorale/optim/averaged.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/grouped.hpp>
#include <chorale/optim/lamb.hpp>
#include <chorale/optim/lion.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/nadam.hpp>
#include <chorale/optim/rmsprop.hpp>
#include <chorale/optim/schedule.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/reduce/auto.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/bucketed.hpp>
#include <chorale/reduce/collectives.hpp>
#include <chorale/reduce/collectives/sparse_rows.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/compressed.hpp>
#include <chorale/reduce/copied.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/hierarchical.hpp>
#include <chorale/reduce/native.hpp>
#include <chorale/reduce/own_thread.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/step_operations.hpp>
#include <chorale/reduce/to_one.hpp>
#include <chorale/reduce/top_k.hpp>
#include <chorale/reduce/topology.hpp>
#include <chorale/reduce/tree.hpp>

#include <chorale/model/averages.hpp>
#include <chorale/model/custom.hpp>
#include <chorale/model/memory.hpp>

#include <chorale/nn/compile.hpp>
#include <chorale/nn/engine/summary.hpp>
#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/layers/attention.hpp>
#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/bidirectional.hpp>
#include <chorale/nn/layers/class_token.hpp>
#include <chorale/nn/layers/conv1d.hpp>
#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/layers/conv2d_transpose.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/depthwise_conv2d.hpp>
#include <chorale/nn/layers/dropout.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/layers/flatten.hpp>
#include <chorale/nn/layers/gaussian_noise.hpp>
#include <chorale/nn/layers/global_pool.hpp>
#include <chorale/nn/layers/group_norm.hpp>
#include <chorale/nn/layers/gru.hpp>
#include <chorale/nn/layers/interaction.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/layers/lstm.hpp>
#include <chorale/nn/layers/merge.hpp>
#include <chorale/nn/layers/multi_head_attention.hpp>
#include <chorale/nn/layers/pool1d.hpp>
#include <chorale/nn/layers/pool2d.hpp>
#include <chorale/nn/layers/prelu.hpp>
#include <chorale/nn/layers/recurrent.hpp>
#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/layers/resize.hpp>
#include <chorale/nn/layers/rms_norm.hpp>
#include <chorale/nn/layers/simple_rnn.hpp>
#include <chorale/nn/layers/unit_norm.hpp>
#include <chorale/nn/losses/binary_losses.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/losses/objective.hpp>
#include <chorale/nn/losses/position_loss.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/losses/weighted_loss.hpp>
#include <chorale/nn/metrics/class_metrics.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/nn/metrics/state_metrics.hpp>
#include <chorale/nn/networks/block.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/networks/recompute.hpp>
#include <chorale/nn/networks/sequential.hpp>
#include <chorale/nn/trace/host_layer.hpp>

#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/strategy/same_data.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/strategy/strategy.hpp>

#include <chorale/trainer/callbacks.hpp>
#include <chorale/trainer/evaluator.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/loggers.hpp>
#include <chorale/trainer/run_config.hpp>
#include <chorale/trainer/run_folder.hpp>
#include <chorale/trainer/trainer.hpp>
