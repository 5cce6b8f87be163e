// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything a training program includes, from the lowest layer to the highest. docs/20-layers.md has the picture.
/// Programs of several processes include <chorale/processes.hpp>; its transports also have headers of their own:
/// <chorale/transport/tcp.hpp>, shared_memory.hpp, mpi.hpp.

#include <chorale/config.hpp>

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
#include <chorale/reduce/training_form.hpp>
#include <chorale/reduce/tree.hpp>

#include <chorale/model/averages.hpp>
#include <chorale/model/custom.hpp>
#include <chorale/model/memory.hpp>

#include <chorale/nn/activation.hpp>
#include <chorale/nn/attention.hpp>
#include <chorale/nn/batch_norm.hpp>
#include <chorale/nn/bidirectional.hpp>
#include <chorale/nn/binary_losses.hpp>
#include <chorale/nn/block.hpp>
#include <chorale/nn/class_metrics.hpp>
#include <chorale/nn/class_token.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/conv1d.hpp>
#include <chorale/nn/conv2d.hpp>
#include <chorale/nn/conv2d_transpose.hpp>
#include <chorale/nn/dense.hpp>
#include <chorale/nn/depthwise_conv2d.hpp>
#include <chorale/nn/derivatives.hpp>
#include <chorale/nn/dropout.hpp>
#include <chorale/nn/embedding.hpp>
#include <chorale/nn/experts.hpp>
#include <chorale/nn/flatten.hpp>
#include <chorale/nn/gaussian_noise.hpp>
#include <chorale/nn/global_pool.hpp>
#include <chorale/nn/gradient_error.hpp>
#include <chorale/nn/graph.hpp>
#include <chorale/nn/group_norm.hpp>
#include <chorale/nn/gru.hpp>
#include <chorale/nn/host_layer.hpp>
#include <chorale/nn/interaction.hpp>
#include <chorale/nn/layer_norm.hpp>
#include <chorale/nn/loss.hpp>
#include <chorale/nn/lstm.hpp>
#include <chorale/nn/merge.hpp>
#include <chorale/nn/metric.hpp>
#include <chorale/nn/metric_state.hpp>
#include <chorale/nn/multi_head_attention.hpp>
#include <chorale/nn/objective.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/nn/pipeline/timetable.hpp>
#include <chorale/nn/pool1d.hpp>
#include <chorale/nn/pool2d.hpp>
#include <chorale/nn/prelu.hpp>
#include <chorale/nn/recompute.hpp>
#include <chorale/nn/recurrent.hpp>
#include <chorale/nn/reshape.hpp>
#include <chorale/nn/resize.hpp>
#include <chorale/nn/rms_norm.hpp>
#include <chorale/nn/row_losses.hpp>
#include <chorale/nn/sequential.hpp>
#include <chorale/nn/sharded_embedding.hpp>
#include <chorale/nn/sharded_tables.hpp>
#include <chorale/nn/simple_rnn.hpp>
#include <chorale/nn/split.hpp>
#include <chorale/nn/split_attention.hpp>
#include <chorale/nn/split_dense.hpp>
#include <chorale/nn/split_embedding.hpp>
#include <chorale/nn/split_loss.hpp>
#include <chorale/nn/split_sequence.hpp>
#include <chorale/nn/spread.hpp>
#include <chorale/nn/state_metrics.hpp>
#include <chorale/nn/summary.hpp>
#include <chorale/nn/unit_norm.hpp>
#include <chorale/nn/weighted_loss.hpp>

#include <chorale/renamed.hpp>

#include <chorale/strategy/advise_forms.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/hybrid.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/network_memory.hpp>
#include <chorale/strategy/one_device.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/strategy/same_data.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/strategy/strategy.hpp>

#include <chorale/trainer/callbacks.hpp>
#include <chorale/trainer/evaluator.hpp>
#include <chorale/trainer/loggers.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/online.hpp>
#include <chorale/trainer/retarget.hpp>
#include <chorale/trainer/run_config.hpp>
#include <chorale/trainer/run_folder.hpp>
#include <chorale/trainer/trainer.hpp>
