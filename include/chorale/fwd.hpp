// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The table of contents: the public types, in the order in which a program puts them together, each under the header
/// that defines it. A header that only names these types includes this one, which compiles no definition of them.

#include <chorale/core/fraction.hpp>
#include <chorale/device/device.hpp>
#include <chorale/transport/transport.hpp>

namespace chorale {

template <class Model, class Strategy, class Reduce, class Transport> class Trainer;  // trainer/trainer.hpp
template <class Strategy, class Reduce, class Transport> class Live;                  // strategy/live.hpp
template <class Reduce, class E> class Replica;                                       // strategy/replica.hpp

// Model: a network, how it is compiled, and its layers.
namespace nn {

template <class... F> struct Graph;                         // nn/networks/graph.hpp
template <class First, class... Layers> struct Sequential;  // nn/networks/sequential.hpp
template <class T> struct Precision;
template <class... Layers> struct Block;  // nn/networks/block.hpp
template <class... Layers> struct Residual;
template <class... Layers> struct Shortcut;  // nn/networks/residual.hpp
template <int N, class... Layers> struct Repeat;
template <class B> struct Recompute;                                                  // nn/networks/recompute.hpp
template <class Net, class Loss, class Optimizer, class... Metrics> struct Compiled;  // nn/compile.hpp
template <int... D> struct Input;                                                     // nn/trace/layer.hpp
template <int Units, class... Options> struct Dense;                                  // nn/layers/dense.hpp
template <int Filters, int Kernel, class... Options> struct Conv2D;                   // nn/layers/conv2d.hpp
template <int Columns> struct KernelWidth;
template <int N> struct Dilation;
template <int N> struct Groups;
template <int Filters, int Kernel, class... Options> struct Conv1D;  // nn/layers/conv1d.hpp
template <int Kernel, class... Options> struct DepthwiseConv2D;      // nn/layers/depthwise_conv2d.hpp
template <int Filters, int Kernel, class... Options> struct SeparableConv2D;
template <int Filters, int Kernel, class... Options> struct Conv2DTranspose;  // nn/layers/conv2d_transpose.hpp
template <int Size, class... Options> struct MaxPool2D;                       // nn/layers/pool2d.hpp
template <int Size, class... Options> struct AveragePool2D;
template <int Size, class... Options> struct MaxPool1D;  // nn/layers/pool1d.hpp
template <int Size, class... Options> struct AveragePool1D;
struct GlobalAveragePool2D;
struct GlobalMaxPool2D;
template <int Rows, int Columns> struct UpSampling2D;  // nn/layers/resize.hpp
template <int Top, int Bottom, int Left, int Right> struct ZeroPadding2D;
template <int Top, int Bottom, int Left, int Right> struct Cropping2D;
template <class... Options> struct BatchNorm;  // nn/layers/batch_norm.hpp
template <class... Options> struct SyncBatchNorm;
template <int Groups, class... Options> struct GroupNorm;  // nn/layers/group_norm.hpp
template <class... Options> struct RMSNorm;                // nn/layers/rms_norm.hpp
struct LayerNorm;                                          // nn/layers/layer_norm.hpp
template <class... Options> struct LayerNormWith;
struct UnitNorm;                                                    // nn/layers/unit_norm.hpp
template <int... I> struct By;                                      // nn/derivatives/derivatives.hpp
struct Distribution;                                                // nn/parallel/distribution/types.hpp
template <class O, class... On> struct Spread;                      // nn/parallel/distribution/spread.hpp
struct SpreadsAs;                                                   // nn/parallel/distribution/call.hpp
template <Fraction Rate> struct Dropout;                            // nn/layers/dropout.hpp
template <Fraction Deviation> struct GaussianNoise;                 // nn/layers/gaussian_noise.hpp
template <class... Options> struct PReLU;                           // nn/layers/prelu.hpp
struct Flatten;                                                     // nn/layers/flatten.hpp
struct Softmax;                                                     // nn/layers/activation.hpp
template <int Rows, int Width, class... Options> struct Embedding;  // nn/layers/embedding.hpp
enum class Bag;
template <int Rows, int Width, Bag As, class... Options> struct EmbeddingBag;
struct ByRow;  // nn/parallel/sharded_embedding.hpp
struct ByRowInTurn;
struct ByColumn;
template <class A, int Rows, int Width, class... Options> struct ShardedEmbedding;
template <class A, int Rows, int Width, Bag As, class... Options> struct ShardedEmbeddingBag;
template <int... Rows> struct TableRows;  // nn/parallel/sharded_tables.hpp
template <class A, int Width, class Tables, Bag As, class... Options> struct ShardedTables;
template <int Percent> struct Capacity;  // nn/parallel/experts.hpp
template <int Count> struct Top;
template <int Percent> struct Balanced;
struct Uncounted;
template <class A, int Count, int Hidden, class... Options> struct Experts;
struct GlobalAveragePool1D;  // nn/layers/global_pool.hpp
struct GlobalMaxPool1D;
struct Sequences;  // nn/layers/recurrent.hpp
struct Reverse;
template <int Units, class... Options> struct LSTM;       // nn/layers/lstm.hpp
template <int Units, class... Options> struct GRU;        // nn/layers/gru.hpp
template <int Units, class... Options> struct SimpleRNN;  // nn/layers/simple_rnn.hpp
template <class L> struct Bidirectional;                  // nn/layers/bidirectional.hpp
template <int Number> struct Heads;                       // nn/layers/attention.hpp
template <int Number> struct CausalHeads;
template <int Heads, int KeyDim, class... Options> struct MultiHeadAttention;  // nn/layers/multi_head_attention.hpp
struct ClassToken;                                                             // nn/layers/class_token.hpp
template <class A, int Width, class... Options> struct ColumnDense;            // nn/parallel/split_dense.hpp
template <class A, int Width, class... Options> struct RowDense;
template <class A, int Number, class... Options> struct ColumnHeads;  // nn/parallel/split_attention.hpp
template <class A, int Number, class... Options> struct RingHeads;
template <class A, int Rows, int Width, class... Options> struct SplitEmbedding;  // nn/parallel/split_embedding.hpp
template <class A, class... Options> struct SplitLayerNorm;                       // nn/parallel/split_sequence.hpp
template <int N> struct Parts;                                                    // nn/parallel/split.hpp
template <int N> struct Blocks;
struct SplitSequence;
struct Add;  // nn/layers/merge.hpp
struct Subtract;
struct Multiply;
struct Maximum;
struct Minimum;
struct Average;
struct Dot;
struct Concatenate;

}  // namespace nn

// Schedules of a pipeline.
template <int m> struct AllForwardAllBackward;  // nn/pipeline/schedules.hpp
template <int m> struct OneForwardOneBackward;
template <int m, int n> struct Interleaved;
template <int m> struct ZeroBubbleH1;
template <int m> struct ZeroBubbleV;

namespace pipelines {

template <auto entries_of, int m, int n> struct Table;  // nn/pipeline/entry.hpp

}  // namespace pipelines

namespace loss {  // nn/losses/loss.hpp

struct SparseCrossEntropy;
struct CrossEntropy;
struct SparseCrossEntropyOfProbabilities;
struct CrossEntropyOfProbabilities;
struct MeanSquaredError;
struct BinaryCrossEntropy;  // nn/losses/row_losses.hpp
struct BinaryCrossEntropyOfProbabilities;
struct MeanAbsoluteError;
struct Huber;
struct LogCosh;
struct Poisson;
struct KLDivergence;
struct CosineSimilarity;
struct Given;
struct Hinge;  // nn/losses/binary_losses.hpp
struct SquaredHinge;
struct BinaryFocalCrossEntropy;
template <class L> class Weighted;     // nn/losses/weighted_loss.hpp
template <class L> class PerPosition;  // nn/losses/position_loss.hpp
class ignore_label;

}  // namespace loss

namespace metric {  // nn/metrics/metric.hpp

struct Accuracy;
struct BinaryAccuracy;
struct MeanAbsoluteError;
template <int K> struct TopKAccuracy;
template <class M> struct Counts;  // nn/metrics/metric_state.hpp
struct Precision;                  // nn/metrics/state_metrics.hpp
struct Recall;
struct F1;
enum class Curve;
template <int Thresholds, Curve curve> struct AUC;
struct RootMeanSquaredError;
template <int Class> struct PrecisionOf;  // nn/metrics/class_metrics.hpp
template <int Class> struct RecallOf;
template <int Class> struct F1Of;
template <int Classes> struct ConfusionMatrix;
template <int Classes> struct MeanIoU;
struct Perplexity;

}  // namespace metric

namespace placement {

template <int along> struct Sharded;  // placement/placed.hpp
template <auto operation> struct Partial;
struct Shard;
class ShardCut;  // placement/shard_cut.hpp

}  // namespace placement

namespace libtorch {

template <class Make, class Loss> class Learner;  // libtorch/model.hpp

}  // namespace libtorch

namespace optim {

struct Adagrad;  // optim/adagrad.hpp
struct SGD;      // optim/sgd.hpp
struct Adam;     // optim/adam.hpp
struct AdamW;
struct Nadam;           // optim/nadam.hpp
struct RMSprop;         // optim/rmsprop.hpp
struct Lion;            // optim/lion.hpp
struct Lamb;            // optim/lamb.hpp
struct ParameterGroup;  // optim/grouped.hpp
struct LinearWarmup;    // optim/schedule.hpp
struct ExponentialDecay;
struct CosineDecay;
class PiecewiseEpochs;

}  // namespace optim

// Strategy: which devices take part, and where variables are.
template <Device D> struct OneDeviceStrategy;                     // strategy/one_device.hpp
template <Device D> class MirroredStrategy;                       // strategy/mirrored.hpp
template <Device D> class CentralStorageStrategy;                 // strategy/central_storage.hpp
template <Device D> class MultiWorkerMirroredStrategy;            // strategy/multi_worker_mirrored.hpp
enum class Zero;                                                  // strategy/sharded.hpp
template <Zero zero, Device D> class ShardedStrategy;             // strategy/sharded.hpp, in <chorale/parallel.hpp>
template <int N, Zero... shards> struct TPUStrategy;              // pjrt/tpu.hpp
template <Zero zero, int within, Device D> class HybridStrategy;  // strategy/hybrid.hpp
template <class... A> class Mesh;                                 // strategy/mesh/mesh.hpp
template <class M, class... Parts> class MeshStrategy;            // strategy/mesh.hpp
struct Asynchronous;                                              // strategy/consistency.hpp
struct Synchronous;
template <int k> struct BoundedStaleness;
template <int b> struct BackupWorkers;
template <class F> class ServerUpdate;  // strategy/parameter_server/server_update.hpp

// Reduce: how gradients are combined.
struct RingAllReduce;  // reduce/ring.hpp
struct TreeAllReduce;  // reduce/tree.hpp
struct DoubleTreeAllReduce;
struct HalvingDoublingAllReduce;                    // reduce/halving_doubling.hpp
struct RecursiveDoublingAllReduce;                  // reduce/recursive_doubling.hpp
struct PairwiseAllReduce;                           // reduce/pairwise.hpp
struct ReduceToOne;                                 // reduce/to_one.hpp
struct DirectAllReduce;                             // reduce/direct.hpp
struct NativeAllReduce;                             // reduce/native.hpp
struct AutoAllReduce;                               // reduce/auto.hpp
struct CopiedAllReduce;                             // reduce/copied.hpp
template <class Far> struct HierarchicalAllReduce;  // reduce/hierarchical.hpp
template <int PerMille, class W> struct TopK;       // reduce/top_k.hpp
template <class R> struct OwnThread;                // reduce/own_thread.hpp
template <class R, class C> struct Bucketed;        // reduce/bucketed.hpp
template <std::size_t least> struct BucketBytes;
template <int n> struct BucketCount;
struct BucketPerLayer;
struct StepOperations;   // reduce/step_operations.hpp
struct LinkModel;        // advice/estimate.hpp
struct Machines;         // advice/advise.hpp
struct ReplicaMemory;    // model/memory.hpp
struct ModelSizes;       // advice/training_form.hpp
struct TrainingCluster;  // advice/advise_forms.hpp
struct TrainingAdvice;
struct MemoryBudget;  // model/memory.hpp

// Transport: how bytes travel.
struct LocalTransport;                                    // transport/local.hpp
struct SharedMemoryTransport;                             // transport/shared_memory.hpp
template <Transport T> struct Counting;                   // transport/counting.hpp
template <Transport T> struct Faulty;                     // transport/faulty.hpp
template <Transport Near, Transport Far> struct Layered;  // transport/layered.hpp
struct Timeouts;                                          // transport/timeouts.hpp
struct Topology;                                          // transport/topology.hpp

// Where ranks run.
class Cpu;      // device/cpu.hpp
class Pjrt;     // pjrt/device/pjrt.hpp
class Cluster;  // cluster/cluster.hpp

// Weights in files of other programs.
struct WeightMap;  // checkpoint/weight_map.hpp
struct WeightRule;
struct Axes;
class NamePattern;  // core/name_pattern.hpp

// Data: what is learned from.
template <class X, class Y> struct Sample;  // data/elements.hpp
template <class X, class Y> struct BasicBatch;
template <class... F> class Row;  // data/typed_rows.hpp
template <class... F> class Rows;

namespace data {

template <class D> class Pipe;                   // data/pipe.hpp
struct Buckets;                                  // data/stage_options.hpp
template <class Row> class StoredRows;           // data/dataset.hpp
class Digits;                                    // data/digits.hpp
class Shapes;                                    // data/shapes.hpp
template <class Now, class Next> class Windows;  // data/windows.hpp
struct ByteTokenizer;                            // data/text/tokenizer.hpp
class CharacterTokenizer;
class BpeTokenizer;        // data/text/bpe.hpp
class WordPieceTokenizer;  // data/text/word_piece.hpp

}  // namespace data

// What is reported and kept of a run.
class History;                                                                               // trainer/history.hpp
struct FitOptions;                                                                           // trainer/options.hpp
template <class Model, class Strategy, class Reduce, class Transport> class OnlineTraining;  // trainer/online.hpp
class StepFloor;                                                                             // trainer/epoch_meter.hpp
struct NetworkWork;                                                                          // model/work.hpp
struct Moved;                                                                                // trainer/take_over.hpp
struct EarlyStopping;                                                                        // trainer/callbacks.hpp
struct ReduceLROnPlateau;
class LearningRateScheduler;
struct ModelCheckpoint;
struct CSVLogger;  // trainer/loggers.hpp
struct TensorBoard;
class RunFolder;       // trainer/run_folder.hpp
struct RunConfig;      // trainer/run_config.hpp
class CsvLog;          // observe/csv.hpp
class TensorBoardRun;  // observe/tensorboard.hpp
class Prometheus;      // observe/prometheus.hpp
class Timeline;        // observe/timeline.hpp

// Errors: each is an Error, and says what, where, both numbers, and what to try.
class Error;  // core/error.hpp
struct BadArgument;
struct BadFile;
struct FileFault;
struct Preempted;
struct NumericFault;
struct OutOfMemory;
struct OutOfDescriptors;
class PeerLost;
class Disagreement;

}  // namespace chorale
