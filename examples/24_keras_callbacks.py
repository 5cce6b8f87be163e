# SPDX-License-Identifier: Apache-2.0
"""MNIST with six callbacks, in Keras. 24_keras_callbacks.cpp beside it is its port."""
import sys

import keras
import numpy as np

file = sys.argv[1] if len(sys.argv) > 1 else "mnist.npz"
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 12

with np.load(file) as data:
    x_train, y_train = data["x_train"].astype("float32")[..., np.newaxis] / 255, data["y_train"]
    x_test, y_test = data["x_test"].astype("float32")[..., np.newaxis] / 255, data["y_test"]

model = keras.Sequential([
    keras.Input((28, 28, 1)),
    keras.layers.Conv2D(32, 3, activation="relu"),
    keras.layers.MaxPooling2D(2),
    keras.layers.Conv2D(64, 3, activation="relu"),
    keras.layers.MaxPooling2D(2),
    keras.layers.Flatten(),
    keras.layers.Dropout(0.5),
    keras.layers.Dense(10),
])
model.compile(optimizer=keras.optimizers.Adam(),
              loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=128, epochs=epochs, validation_data=(x_test, y_test), callbacks=[
    keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate if epoch < 8 else rate * 0.9),
    keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=2, min_lr=1e-5),
    keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
    keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
    keras.callbacks.CSVLogger("log.csv"),
    keras.callbacks.TensorBoard("logs"),
])
loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"test: loss {loss:.4f}  accuracy {accuracy:.4f}")
