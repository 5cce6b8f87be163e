#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weights_test.py WEIGHTS: files of variables, written here and read by others, and the other way.

safetensors' own reader finds the tensors; networks of PyTorch and Keras with these variables give the same outputs; and
the outputs here are theirs for what they have written.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

failed = False
NAMES = ["conv2d/kernel", "conv2d/bias", "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]


def verdict(what, ok):
    global failed
    print(f"{'PASSED' if ok else 'FAILED'}: {what}")
    failed |= not ok


def ours(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"FAILED: {program} {args}: {done.stderr}")
    return [[float(y) for y in row.split()] for row in done.stdout.splitlines()]


def images(np):
    return (np.arange(5 * 12 * 12 * 2) * 37 % 101 / 101).astype(np.float32).reshape(5, 12, 12, 2)


def close(np, a, b):
    return np.max(np.abs(np.asarray(a) - np.asarray(b))) < 1e-5 * np.max(np.abs(np.asarray(b)))


def with_torch(program, folder, saved):
    """Conv2d has (out, in, h, w) where chorale has (h, w, in, out); Linear (out, in) where it has (in, out)."""
    import numpy as np
    import torch
    from safetensors.torch import load_file, save_file

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv2d, self.dense, self.dense_1 = (torch.nn.Conv2d(2, 8, 3), torch.nn.Linear(200, 16),
                                                     torch.nn.Linear(16, 10))

        def forward(self, x):
            x = torch.max_pool2d(torch.relu(self.conv2d(x)), 2)
            x = x.permute(0, 2, 3, 1).flatten(1)                # pixels with their channels, as there
            return self.dense_1(torch.relu(self.dense(x)))

    def turned(kernel, back=False):
        if kernel.ndim == 2:
            return kernel.T.contiguous()
        return kernel.permute(*((2, 3, 1, 0) if back else (3, 2, 0, 1))).contiguous()

    net = Net()
    net.load_state_dict({name.replace("/kernel", ".weight").replace("/bias", ".bias"):
                         turned(value) if name.endswith("kernel") else value for name, value in load_file(saved).items()})
    x = torch.from_numpy(images(np)).permute(0, 3, 1, 2)
    with torch.no_grad():
        verdict("PyTorch gives the outputs of variables written here", close(np, net(x).numpy(), ours(program, "outputs", saved)))
        torch.manual_seed(3)
        for value in net.parameters():
            value.add_(0.1 * torch.randn(value.shape))
        theirs = str(folder / "torch.safetensors")
        save_file({name.replace(".weight", "/kernel").replace(".bias", "/bias"):
                   turned(value, back=True) if name.endswith("weight") else value
                   for name, value in net.state_dict().items()}, theirs)
        verdict("the outputs here are PyTorch's, for variables written there", close(np, ours(program, "outputs", theirs), net(x).numpy()))


def with_keras(program, folder, saved):
    """The same layout, in the same order."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import numpy as np
    from safetensors.numpy import load_file, save_file

    net = keras.Sequential([keras.layers.Input((12, 12, 2)), keras.layers.Conv2D(8, 3, activation="relu"),
                            keras.layers.MaxPooling2D(), keras.layers.Flatten(),
                            keras.layers.Dense(16, activation="relu"), keras.layers.Dense(10)])
    values = load_file(saved)
    net.set_weights([values[name] for name in NAMES])
    verdict("Keras gives the outputs of variables written here",
            close(np, net.predict(images(np), verbose=0), ours(program, "outputs", saved)))
    drawn = np.random.default_rng(3)
    net.set_weights([value + drawn.normal(0, 0.1, value.shape).astype(np.float32) for value in net.get_weights()])
    theirs = str(folder / "keras.safetensors")
    save_file(dict(zip(NAMES, net.get_weights())), theirs)
    verdict("the outputs here are Keras's, for variables written there",
            close(np, ours(program, "outputs", theirs), net.predict(images(np), verbose=0)))
    again = str(folder / "again.safetensors")
    save_file(load_file(theirs), again)
    verdict("a file that went through safetensors is the same, byte for byte",
            pathlib.Path(again).read_bytes() == pathlib.Path(theirs).read_bytes())


def has(package):
    return importlib.util.find_spec(package) is not None


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        saved = str(folder / "ours.safetensors")
        ours(program, "save", saved)
        if not has("safetensors"):
            print("SKIPPED: weights read by safetensors, PyTorch and Keras: there is no python package safetensors")
        else:
            from safetensors import safe_open
            with safe_open(saved, "np") as file:
                verdict("safetensors reads what is written here", sorted(file.keys()) == sorted(NAMES) and
                        tuple(file.get_slice("conv2d/kernel").get_shape()) == (3, 3, 2, 8))
            for package, check in (("torch", with_torch), ("keras", with_keras)):
                if has(package):
                    check(program, folder, saved)
                else:
                    print(f"SKIPPED: weights read and written by {package}: there is no such python package")
    sys.exit(failed)


main()
