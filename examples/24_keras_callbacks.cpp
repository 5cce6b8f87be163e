// SPDX-License-Identifier: Apache-2.0
//
// MNIST with six callbacks, as Keras' users know them: the port of 24_keras_callbacks.py, which is beside this file. Both
// write the same columns to log.csv and the same curves to logs.
//
//   tools/run 24_keras_callbacks mnist.npz               the file that keras.datasets.mnist.load_data() fetches
//   tensorboard --logdir logs                            if you have it
//
// Expect twelve epochs or fewer, then a line such as
//   test: loss 0.0228  accuracy 0.9919
#include <chorale/chorale.hpp>
#include <chorale/cluster/exit_report.hpp>

#include <cstdlib>
#include <iostream>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::ReLU, nn::MaxPool2D<2>, nn::Conv2D<64, 3>,
                            nn::ReLU, nn::MaxPool2D<2>, nn::Flatten, nn::Dropout<0.5>, nn::Dense<10>> {};

int main(int argc, char** argv) try {
  auto const file   = argc > 1 ? argv[1] : "mnist.npz";
  auto const epochs = argc > 2 ? std::atoi(argv[2]) : 12;

  auto train = data::npz<std::uint8_t, std::uint8_t>(file, "x_train", "y_train").map(data::scale);
  auto test  = data::npz<std::uint8_t, std::uint8_t>(file, "x_test", "y_test").map(data::scale).batch(128);

  auto model   = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{});
  auto trainer = Trainer{model, OneDeviceStrategy{}};
  trainer.fit(train.cache().shuffle(60'000).batch(128).prefetch(2), {.epochs = epochs}, validation_data(test),
              LearningRateScheduler{[](int epoch, float rate) { return epoch < 8 ? rate : rate * 0.9F; }},
              ReduceLROnPlateau{.factor = 0.5F, .patience = 2, .min_lr = 1e-5F},
              EarlyStopping{.patience = 3, .restore_best_weights = true},
              ModelCheckpoint{.filepath = "best.safetensors", .save_best_only = true}, CSVLogger{"log.csv"},
              TensorBoard{"logs"});
  std::cout << "test: " << trainer.evaluate(test) << '\n';
} catch (std::exception const& error) { return report_exit(error); }
