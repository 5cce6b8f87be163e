// SPDX-License-Identifier: Apache-2.0
//
// Every layer, loss, metric, update rule and precision of the library, and what devices do with it. names_test.py
// compares the names with the headers, and the tables of docs/45-cuda.md and docs/46-tpu.md with this list; programs
// beside it and in test/cuda train what is `same` for three steps on a device and on Cpu; refused_test.py
// asks compilers about the others.
//
//   LAYER(CUDA in a Sequential, CUDA in a Graph, PJRT, inputs, type)
//   LOSS(CUDA in a Sequential, CUDA in a Graph, PJRT, ending of the network, value)          METRIC alike
//   RULE(CUDA in a Sequential, CUDA in a Graph, PJRT, value)
//   PRECISION(CUDA in a Sequential, CUDA in a Graph, PJRT, rule, type)
//   OPTION(namespace, name)                   of rows of this list
//   PART(namespace, name)                     no layer, loss, metric, rule or precision: what these are made of
//
// An answer is `same`, `no(n)`: sentence n of the compiler, `throws(n)`: the same as the program runs, or `none`: on
// no device in a Sequential.

// Layers: activations
LAYER(same, same, same, vector, nn::ReLU)
LAYER(same, same, same, vector, nn::LeakyReLU<20>)
LAYER(same, same, same, vector, nn::ELU)
LAYER(same, same, same, vector, nn::Tanh)
LAYER(same, same, same, vector, nn::Sigmoid)
LAYER(same, same, same, vector, nn::Softplus)
LAYER(same, same, same, vector, nn::GELU)
LAYER(same, same, same, vector, nn::GELUTanh)
LAYER(same, same, same, vector, nn::SiLU)
LAYER(same, same, same, vector, nn::Softmax)
LAYER(none, same, same, sequence, nn::Softmax)
LAYER(none, no(1), same, vector, nn::PReLU<>)
LAYER(none, no(1), same, image, nn::PReLU<nn::PerChannel>)
LAYER(none, no(1), no(2), vector, nn::Elementwise<Cubed>)
// Layers: of vectors
LAYER(same, same, same, vector, nn::Dense<4>)
LAYER(same, same, same, vector, nn::Dense<4, nn::HeNormal>)
LAYER(none, same, same, sequence, nn::Dense<4, nn::GlorotUniform>)
LAYER(same, same, same, vector, nn::Dropout<40>)
LAYER(same, same, same, image, nn::Dropout<40>)
LAYER(no(3), no(3), same, vector, nn::GaussianNoise<10>)
LAYER(same, same, same, vector, nn::Residual<nn::Dense<6>, nn::Tanh>)
LAYER(same, same, same, vector, nn::Residual<nn::Dense<4>, nn::Shortcut<nn::Dense<4>>>)
LAYER(same, same, same, vector, nn::Block<nn::Dense<4>, nn::Tanh>)
LAYER(same, same, same, vector, nn::Block<nn::Repeat<2, nn::Dense<6>, nn::ReLU>>)
LAYER(none, no(4), same, vector, nn::Recompute<nn::Block<nn::Dense<4>, nn::Tanh>>)
// Layers: normalizations
LAYER(same, same, same, vector, nn::BatchNorm<>)
LAYER(same, same, same, image, nn::BatchNorm<nn::Momentum<90>, nn::Epsilon<10>>)
LAYER(same, same, same, vector, nn::SyncBatchNorm<>)
LAYER(none, same, same, vector, nn::LayerNorm)
LAYER(none, same, same, sequence, nn::LayerNormWith<nn::EpsilonPower<2>>)
LAYER(none, no(1), same, vector, nn::RMSNorm<>)
LAYER(none, no(1), same, vector, nn::UnitNorm)
LAYER(none, no(1), same, image, nn::GroupNorm<2>)
// Layers: of images
LAYER(same, same, same, image, nn::Conv2D<4, 3>)
LAYER(same, same, same, image, nn::Conv2D<4, 3, nn::Same, nn::Stride<2>, nn::NoBias, nn::HeUniform>)
LAYER(same, same, same, image, nn::Conv2D<4, 3, nn::Pad<1>, nn::GlorotNormal>)
LAYER(same, same, same, image, nn::Conv2D<4, 1, nn::Valid, nn::Orthogonal>)
LAYER(no(5), no(5), same, image, nn::Conv2D<4, 2, nn::KernelWidth<3>>)
LAYER(no(5), no(5), same, image, nn::Conv2D<4, 2, nn::Dilation<2>>)
LAYER(no(5), no(5), same, image, nn::Conv2D<4, 2, nn::Groups<2>>)
LAYER(none, no(6), same, image, nn::SeparableConv2D<3, 3>)
LAYER(no(6), no(6), same, image, nn::DepthwiseConv2D<3, nn::DepthMultiplier<2>>)
LAYER(no(7), no(7), same, image, nn::Conv2DTranspose<3, 3, nn::Same, nn::Stride<2>>)
LAYER(same, same, same, image, nn::MaxPool2D<2>)
LAYER(same, same, same, image, nn::AveragePool2D<3, nn::Same, nn::Stride<2>>)
LAYER(none, no(1), same, image, nn::GlobalAveragePool2D)
LAYER(none, no(1), same, image, nn::GlobalMaxPool2D)
LAYER(none, no(1), same, image, nn::UpSampling2D<2, 3>)
LAYER(none, no(1), same, image, nn::ZeroPadding2D<1, 2, 0, 1>)
LAYER(none, no(1), same, image, nn::Cropping2D<1, 0, 1, 2>)
// Layers: shapes
LAYER(same, same, same, image, nn::Flatten)
LAYER(none, no(1), same, image, nn::Reshape<10, 12>)
LAYER(none, no(1), same, image, nn::Permute<2, 0, 1>)
LAYER(none, no(1), same, image, nn::Slice<1, 3, 1>)
// Layers: of sequences
LAYER(no(8), no(8), same, sequence, nn::Conv1D<4, 3>)
LAYER(no(8), no(8), same, sequence, nn::Conv1D<4, 2, nn::Causal>)
LAYER(none, no(1), same, sequence, nn::MaxPool1D<2>)
LAYER(none, no(1), same, sequence, nn::AveragePool1D<3, nn::Same>)
LAYER(none, no(1), same, sequence, nn::GlobalAveragePool1D)
LAYER(none, no(1), same, sequence, nn::GlobalMaxPool1D)
LAYER(none, no(1), same, sequence, nn::LSTM<4>)
LAYER(none, no(1), same, sequence, nn::LSTM<4, nn::Sequences, nn::Reverse>)
LAYER(none, no(1), same, sequence, nn::GRU<4>)
LAYER(none, no(1), same, sequence, nn::SimpleRNN<4, nn::ReturnSequences>)
LAYER(none, no(1), same, sequence, nn::Bidirectional<nn::LSTM<3, nn::Sequences>>)
LAYER(none, same, same, sequence, nn::TimeDistributed<nn::Dense<3>>)
LAYER(none, same, same, sequence, nn::Heads<2>)
LAYER(none, same, same, sequence, nn::CausalHeads<2>)
LAYER(none, no(1), same, sequence, nn::MultiHeadAttention<2, 3, nn::Causal>)
LAYER(none, no(1), same, two_sequences, nn::MultiHeadAttention<2, 3>)
LAYER(none, same, same, sequence, nn::Positions<8, 6>)
LAYER(none, no(1), same, sequence, nn::ClassToken)
// Layers: tables
LAYER(none, no(9), same, ids, nn::Embedding<5, 3>)
LAYER(none, same, same, ids, nn::Embedding<5, 3, nn::DenseGradient>)
LAYER(none, same, same, bytes, nn::Embedding<5, 3, nn::DenseGradient>)
LAYER(none, same, same, ids, Tied)
LAYER(none, no(1), same, ids, nn::EmbeddingBag<5, 3>)
LAYER(none, no(1), same, ids, nn::EmbeddingBag<5, 3, nn::Bag::sum, nn::DenseGradient>)
// Layers: of several inputs
LAYER(none, same, same, two_vectors, nn::Add)
LAYER(none, no(1), same, two_vectors, nn::Subtract)
LAYER(none, no(1), same, two_vectors, nn::Multiply)
LAYER(none, no(1), same, two_vectors, nn::Maximum)
LAYER(none, no(1), same, two_vectors, nn::Minimum)
LAYER(none, no(1), same, two_vectors, nn::Average)
LAYER(none, no(1), same, two_vectors, nn::Concatenate)
LAYER(none, no(1), same, two_vectors, nn::Dot)
LAYER(none, no(1), same, two_vectors, nn::Interaction)
// Layers: what a network does with its inputs
LAYER(none, no(1), no(2), derivatives, nn::By<0>)
LAYER(none, no(10), no(11), ragged_ids, nn::Embedding<5, 3, nn::DenseGradient>)
// Layers: over the ranks of an axis
LAYER(none, no(1), no(2), vector, nn::Block<nn::ColumnDense<Ranks, 4>, nn::RowDense<Ranks, 4, nn::Parts<2>>>)
LAYER(none, no(1), no(2), sequence,
      Scattered<nn::Block<nn::ColumnDense<Ranks, 4, nn::SplitSequence>, nn::RowDense<Ranks, 4, nn::SplitSequence>>>)
LAYER(none, no(1), no(2), sequence,
      nn::Block<nn::ColumnDense<Ranks, 18, nn::Blocks<3>>, nn::ColumnHeads<Ranks, 2>, nn::RowDense<Ranks, 6>>)
LAYER(none, no(1), no(2), sequence, Scattered<nn::RingHeads<Ranks, 2>>)
LAYER(none, no(1), no(2), sequence, Scattered<nn::SplitLayerNorm<Ranks>>)
LAYER(none, no(1), no(2), ids, nn::SplitEmbedding<Ranks, 6, 4>)
LAYER(none, no(1), no(2), ids, nn::ShardedEmbedding<Ranks, 6, 4>)
LAYER(none, no(1), no(2), ids, nn::ShardedEmbedding<Ranks, 6, 4, nn::ByColumn>)
LAYER(none, no(1), no(2), ids, nn::ShardedEmbeddingBag<Ranks, 6, 4, nn::Bag::sum, nn::ByRow>)
LAYER(none, no(1), no(2), ids, nn::ShardedEmbeddingBag<Ranks, 6, 4, nn::Bag::mean, nn::ByRowInTurn>)
LAYER(none, no(1), no(2), ids, nn::ShardedTables<Ranks, 4, nn::TableRows<6>>)
LAYER(none, no(1), no(2), sequence, nn::Experts<Ranks, 4, 6, nn::Capacity<150>, nn::Top<2>>)
LAYER(none, no(1), no(2), sequence, nn::Experts<Ranks, 4, 6, nn::Balanced<1>, nn::Uncounted>)

// Losses: of classes
LOSS(same, same, same, three, loss::SparseCrossEntropy{})
LOSS(throws(23), throws(23), same, three, loss::SparseCrossEntropy{.label_smoothing = 0.1F})
LOSS(same, same, same, three, loss::CrossEntropy{})
LOSS(throws(23), throws(23), same, three, loss::CrossEntropy{.label_smoothing = 0.1F})
LOSS(no(12), no(12), same, three_probabilities, loss::SparseCrossEntropyOfProbabilities{})
LOSS(no(13), no(13), same, three_probabilities, loss::CrossEntropyOfProbabilities{})
LOSS(no(14), no(14), same, three_probabilities, loss::KLDivergence{})
LOSS(no(14), no(14), same, three, loss::Weighted{loss::SparseCrossEntropy{}, {1, 2, 3}})
LOSS(no(14), no(14), no(15), three, loss::per_position(loss::SparseCrossEntropy{}).ignore_label(2))
// Losses: of yes or no
LOSS(no(14), no(14), same, one, loss::BinaryCrossEntropy{})
LOSS(no(14), no(14), same, one, loss::BinaryCrossEntropy{.label_smoothing = 0.1F})
LOSS(no(14), no(14), same, one_probability, loss::BinaryCrossEntropyOfProbabilities{})
LOSS(no(14), no(14), same, one, loss::BinaryFocalCrossEntropy{.apply_class_balancing = true})
LOSS(no(14), no(14), same, one, loss::Hinge{})
LOSS(no(14), no(14), same, one, loss::SquaredHinge{})
// Losses: of numbers
LOSS(same, same, same, three, loss::MeanSquaredError{})
LOSS(no(14), no(14), same, three, loss::MeanAbsoluteError{})
LOSS(no(14), no(14), same, three, loss::Huber{.delta = 0.5F})
LOSS(no(14), no(14), same, three, loss::LogCosh{})
LOSS(no(14), no(14), same, three_above_zero, loss::Poisson{})
LOSS(no(14), no(14), same, three, loss::CosineSimilarity{})
LOSS(no(14), no(14), same, three, loss::Given{})
// Losses: over the ranks of an axis
LOSS(none, no(1, 14), no(2, 15), over_ranks, loss::SplitSparseCrossEntropy<Ranks>{})

// Metrics
METRIC(same, same, same, labels, metric::Accuracy{})
METRIC(same, same, same, labels, metric::TopKAccuracy<2>{})
METRIC(same, same, same, yes_or_no, metric::BinaryAccuracy{})
METRIC(same, same, same, numbers, metric::MeanAbsoluteError{})
METRIC(same, same, same, yes_or_no, metric::Precision{})
METRIC(same, same, same, yes_or_no, metric::Recall{})
METRIC(same, same, same, yes_or_no, metric::F1{})
METRIC(same, same, same, labels, metric::PrecisionOf<1>{})
METRIC(same, same, same, labels, metric::RecallOf<1>{})
METRIC(same, same, same, labels, metric::F1Of<1>{})
METRIC(same, same, same, yes_or_no, metric::AUC<>{})
METRIC(same, same, same, yes_or_no, metric::AUC<20, metric::Curve::precision_recall>{})
METRIC(same, same, same, labels, metric::ConfusionMatrix<3>{})
METRIC(same, same, same, labels, metric::MeanIoU<3>{})
METRIC(same, same, same, labels, metric::Perplexity{})
METRIC(same, same, same, numbers, metric::RootMeanSquaredError{})

// Rules
RULE(same, same, same, optim::SGD{.learning_rate = optim::ExponentialDecay{0.1F, 2, 0.5F}})
RULE(same, same, same, optim::SGD{.momentum = 0.9F, .kind = optim::SGD::Momentum::nesterov, .weight_decay = 0.1F})
RULE(same, same, same, optim::SGD{.learning_rate = optim::LinearWarmup{0.02F, 0.1F, 4}, .global_clipnorm = 0.01F})
RULE(same, same, same, optim::Adam{.learning_rate = optim::CosineDecay{0.1F, 3, 0}})
RULE(same, same, same, optim::AdamW{.learning_rate = optim::PiecewiseEpochs{{0, 0.1F}}, .weight_decay = 0.3F})
RULE(no(16), no(16), same, optim::RMSprop{.momentum = 0.9F, .centered = true})
RULE(no(17), no(17), same, optim::Adagrad{})
RULE(no(18), no(18), same, optim::Nadam{})
RULE(no(19), no(19), same, optim::Lion{})
RULE(no(20), no(20), same, optim::Lamb{})
RULE(no(21), no(21), same, optim::Averaged{optim::SGD{}})
RULE(same, same, same, optim::Grouped{optim::SGD{}, {optim::ParameterGroup{.names = "*bias", .weight_decay = 0}}})
RULE(same, no(22), same, optim::LossScaled{optim::SGD{}})

// Precisions
PRECISION(same, same, same, optim::SGD{}, nn::Precision<float>)
PRECISION(same, same, same, optim::SGD{}, nn::Precision<bf16>)
PRECISION(same, no(22), same, optim::LossScaled{optim::SGD{}}, nn::Precision<fp16>)
PRECISION(same, same, same, optim::SGD{}, WithProducts<Products::tf32>)
PRECISION(same, same, same, optim::SGD{}, WithProducts<Products::bf16>)
PRECISION(same, no(22), same, optim::LossScaled{optim::SGD{}}, WithProducts<Products::fp16>)

OPTION(nn, Balanced)
OPTION(nn, Bag)
OPTION(nn, Blocks)
OPTION(nn, By)
OPTION(nn, ByColumn)
OPTION(nn, ByRow)
OPTION(nn, ByRowInTurn)
OPTION(nn, Capacity)
OPTION(nn, Causal)
OPTION(nn, DenseGradient)
OPTION(nn, DepthMultiplier)
OPTION(nn, Dilation)
OPTION(nn, Epsilon)
OPTION(nn, EpsilonPower)
OPTION(nn, GlorotNormal)
OPTION(nn, GlorotUniform)
OPTION(nn, Groups)
OPTION(nn, HeNormal)
OPTION(nn, HeUniform)
OPTION(nn, KernelWidth)
OPTION(nn, Momentum)
OPTION(nn, NoBias)
OPTION(nn, Orthogonal)
OPTION(nn, Pad)
OPTION(nn, Parts)
OPTION(nn, PerChannel)
OPTION(nn, Repeat)
OPTION(nn, ReturnSequences)
OPTION(nn, Reverse)
OPTION(nn, Same)
OPTION(nn, Sequences)
OPTION(nn, Shortcut)
OPTION(nn, SplitSequence)
OPTION(nn, Stride)
OPTION(nn, TableRows)
OPTION(nn, Top)
OPTION(nn, Uncounted)
OPTION(nn, Valid)
OPTION(metric, Curve)
OPTION(optim, CosineDecay)
OPTION(optim, ExponentialDecay)
OPTION(optim, LinearWarmup)
OPTION(optim, ParameterGroup)
OPTION(optim, PiecewiseEpochs)

PART(nn, Compiled)
PART(nn, Differentiable)
PART(nn, Graph)
PART(nn, Initializer)
PART(nn, Input)
PART(nn, InEachStep)
PART(nn, Layer)
PART(nn, Objective)
PART(nn, Of)
PART(nn, OfOutput)
PART(nn, OnRequest)
PART(nn, Outputs)
PART(nn, Place)
PART(nn, PositionOf)
PART(nn, Refused)
PART(nn, SameShape)
PART(nn, Sequential)
PART(nn, Several)
PART(nn, Site)
PART(nn, Tensor)
PART(nn, WithBack)
PART(nn, WithParts)
PART(nn, WithPrecision)
PART(metric, Counts)
PART(metric, ExactSum)
PART(metric, Mean)
PART(metric, NoStates)
PART(metric, Over)
PART(metric, States)
PART(metric, StatesOf)
PART(optim, LossScale)
PART(optim, Moment)
PART(optim, Rate)
PART(optim, Update)

// What compilers and programs say.
SENTENCE(1,
         "chorale: this layer computes on the host, and the network is for another device. Give the layer "
         "queue_forward<D> and queue_backward<D>, as nn::LayerNorm has them, or use a strategy over Cpu")
SENTENCE(2,
         "chorale: this layer is not written in operations of StableHLO, so no PJRT device computes it. Use layers "
         "that docs/46-tpu.md lists, specialise nn::stablehlo::Lowering, or use a strategy over Cpu")
SENTENCE(3, "chorale: nn::GaussianNoise has no kernels for this device. Use a strategy over Cpu")
SENTENCE(4,
         "chorale: nn::Recompute computes on Cpu only, where memory is shared by what is not in use together. Leave "
         "it out, or use a strategy over Cpu")
SENTENCE(5,
         "chorale: nn::Conv2D with KernelWidth, Dilation or Groups has no kernels for this device. Use a strategy over "
         "Cpu")
SENTENCE(6, "chorale: nn::DepthwiseConv2D has no kernels for this device. Use a strategy over Cpu")
SENTENCE(7, "chorale: nn::Conv2DTranspose has no kernels for this device. Use a strategy over Cpu")
SENTENCE(8, "chorale: nn::Conv1D has no kernels for this device. Use a strategy over Cpu")
SENTENCE(9,
         "chorale: gradients that are rows of a table run on CPUs only. Write nn::Embedding<rows, width, "
         "nn::DenseGradient>, or use a strategy over Cpu")
SENTENCE(10,
         "chorale: a network with rows of different lengths runs on CPUs only. Give its fields one length, or use a "
         "strategy over Cpu")
SENTENCE(11,
         "chorale: a network with rows of different lengths does not compute on PJRT devices. Give its fields one "
         "length, or use a strategy over Cpu")
SENTENCE(12,
         "chorale: loss::SparseCrossEntropyOfProbabilities runs on CPUs only. On a GPU leave nn::Softmax out of the "
         "network and use loss::SparseCrossEntropy, which takes logits and learns the same")
SENTENCE(13,
         "chorale: loss::CrossEntropyOfProbabilities runs on CPUs only. On a GPU leave nn::Softmax out of the "
         "network and use loss::CrossEntropy, which takes logits and learns the same")
SENTENCE(14,
         "chorale: this loss runs on CPUs only. On a GPU use loss::SparseCrossEntropy, loss::CrossEntropy or "
         "loss::MeanSquaredError, or a strategy over Cpu; one of your own needs queue<D>(rows, width, output, "
         "target, d_output, to)")
SENTENCE(15,
         "chorale: this loss is not written in operations of StableHLO, so no PJRT device computes it. Use losses "
         "that docs/46-tpu.md lists, specialise nn::stablehlo::LossLowering, or use a strategy over Cpu")
SENTENCE(16, "chorale: optim::RMSprop runs on CPUs only. On a GPU use optim::Adam")
SENTENCE(17, "chorale: optim::Adagrad runs on CPUs only. On a GPU use optim::Adam")
SENTENCE(18, "chorale: optim::Nadam runs on CPUs only. On a GPU use optim::Adam")
SENTENCE(19, "chorale: optim::Lion runs on CPUs only. On a GPU use optim::AdamW")
SENTENCE(20, "chorale: optim::Lamb runs on CPUs only. On a GPU use optim::AdamW")
SENTENCE(21, "chorale: optim::Averaged runs on CPUs only. Use the optimizer that it contains, or a strategy over Cpu")
SENTENCE(22,
         "chorale: optim::LossScaled does not fit a network derived from nn::Graph, which computes in float. Use the "
         "optimizer that it contains")
SENTENCE(23,
         "label_smoothing is computed on CPUs only, and is 0.1 on another device. Give smoothed targets to "
         "loss::CrossEntropy")
