// SPDX-License-Identifier: Apache-2.0
//
// Plans of lists of layers are those of the releases before: ranks compare their hashes, and checkpoints lie as they say.
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/networks/resnet.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::nn;

namespace {

struct PlannedMlp : Sequential<Input<20>, Dense<64>, Tanh, Dropout<25>, Dense<33>, SiLU, Dense<10>> {};
struct PlannedBranched
    : Sequential<Input<8, 8, 3>, Conv2D<16, 3, Same>, BatchNorm<>, ReLU,
                 Residual<Conv2D<16, 3, Same>, BatchNorm<>, ReLU, Dropout<10>, Conv2D<16, 3, Same>>, ReLU,
                 Residual<Conv2D<24, 3, Same, Stride<2>>, ReLU, Dropout<20>, Shortcut<Conv2D<24, 1, Stride<2>>>>,
                 Dropout<5>, AveragePool2D<2>, Flatten, Dense<10>> {};
struct PlannedNested : Sequential<Input<20>, Dense<16>,
                                  Residual<Residual<Dense<16>, Tanh>, Dense<16>,
                                           Residual<Dense<8>, Shortcut<Dense<8>, Dropout<20>>>, Dense<16>>,
                                  Residual<Tanh, Dropout<10>, Residual<Residual<ReLU>>>, Dense<10>> {};
struct PlannedSynced : Sequential<Input<8, 8, 3>, Conv2D<5, 3>, SyncBatchNorm<>, ReLU, MaxPool2D<2>, Flatten, Dense<16>,
                                  SyncBatchNorm<>, Tanh, Dense<10>> {};
struct PlannedFirst : Sequential<Input<20>, Residual<Dense<20>, ELU>, ReLU, Dropout<10>,
                                 Repeat<3, Dense<20>, Residual<ReLU, Dense<20>>>, Softplus, Dense<10>, Softmax> {};

}  // namespace

TEST_CASE("lists of layers have the plans that they had before", "[nn][plan]") {
  STATIC_REQUIRE(tiny::LeNet::plan.hash == 0x9a5b68b82a26840e);
  STATIC_REQUIRE(PlannedMlp::plan.hash == 0x99a873c5e32b23ce);
  STATIC_REQUIRE(PlannedBranched::plan.hash == 0x8b12717ce3d770ad);
  STATIC_REQUIRE(PlannedNested::plan.hash == 0xc797b58ab71a726e);
  STATIC_REQUIRE(PlannedSynced::plan.hash == 0x5d9a506e2a05bae1);
  STATIC_REQUIRE(PlannedFirst::plan.hash == 0x13f6f99ae73799bb);
  STATIC_REQUIRE(resnet::ResNet50<>::plan.hash == 0xa667cc374349d454);
}
