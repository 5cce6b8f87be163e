// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program includes whose model is over several ranks: ShardedStrategy, HybridStrategy, MeshStrategy, pipelines,
/// layers that are split or spread, experts, sharded tables. Several processes need <chorale/processes.hpp> as well.

#include <chorale/chorale.hpp>

#include <chorale/nn/parallel/experts.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/nn/parallel/sharded_tables.hpp>
#include <chorale/nn/parallel/split.hpp>
#include <chorale/nn/parallel/split_attention.hpp>
#include <chorale/nn/parallel/split_dense.hpp>
#include <chorale/nn/parallel/split_embedding.hpp>
#include <chorale/nn/parallel/split_loss.hpp>
#include <chorale/nn/parallel/split_sequence.hpp>
#include <chorale/nn/parallel/spread.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/nn/pipeline/timetable.hpp>
#include <chorale/strategy/hybrid.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/strategy/sharded.hpp>
