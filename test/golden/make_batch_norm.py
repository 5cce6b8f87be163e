#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes batch_norm.safetensors: what PyTorch computes for a CNN with two batch normalizations.

    /usr/bin/python3 test/golden/make_batch_norm.py test/golden/batch_norm.safetensors

Made with PyTorch 1.13 (Debian's python3-torch 1.13.1) on the CPU, in float64, stored as float32. It prints how far the
same program in float32 is from that.

The network: Conv2D(8, 3x3, valid), BatchNorm, Tanh, AveragePool 2x2, Flatten in (H, W, C) order, Dense 16, BatchNorm,
Tanh, Dense 10 logits, softmax cross entropy: in no step is there a tie that rounding could turn. Five steps of SGD with
rate 0.1 on the batch of make_cnn.py; then the logits as evaluation gives them. Momentum 0.99 and epsilon 1e-3 are
Keras'; PyTorch's own running variance divides by the count less one, so the moving statistics are written out here.
"""
import sys

import torch
import torch.nn.functional as F

from make_cnn import ROWS, inputs, value, write_safetensors

STEPS, RATE, MOMENTUM, EPSILON = 5, 0.1, 0.99, 1e-3

# name: (shape, salt, scale, middle); values are (value(i) - 0.5) * scale + middle
VARIABLES = {
    "conv2d/kernel": ((3, 3, 1, 8), 0x2545F491, 2.0**-1, 0),
    "conv2d/bias": ((8,), 0x4F6CDD1D, 2.0**-3, 0),
    "batch_normalization/gamma": ((8,), 0x7F4A7C15, 2.0**-1, 1),
    "batch_normalization/beta": ((8,), 0x1CE4E5B9, 2.0**-2, 0),
    "dense/kernel": ((1352, 16), 0x133111EB, 2.0**-3, 0),
    "dense/bias": ((16,), 0x5851F42D, 2.0**-3, 0),
    "batch_normalization_1/gamma": ((16,), 0x2F4A7C15, 2.0**-1, 1),
    "batch_normalization_1/beta": ((16,), 0x3CE4E5B9, 2.0**-2, 0),
    "dense_1/kernel": ((16, 10), 0x433111EB, 1.0, 0),
    "dense_1/bias": ((10,), 0x6851F42D, 2.0**-3, 0),
}


class Network:
    def __init__(self, dtype):
        self.v = {name: ((value(torch.Size(shape).numel(), salt) - 0.5) * scale + middle).reshape(shape).to(dtype)
                  .requires_grad_() for name, (shape, salt, scale, middle) in VARIABLES.items()}
        self.moving = {}
        for layer, channels in (("batch_normalization", 8), ("batch_normalization_1", 16)):
            self.moving[layer + "/moving_mean"] = torch.zeros(channels, dtype=dtype)
            self.moving[layer + "/moving_variance"] = torch.ones(channels, dtype=dtype)

    def normalize(self, x, layer, training):
        over = [i for i in range(x.dim()) if i != 1]
        mean, variance = self.moving[layer + "/moving_mean"], self.moving[layer + "/moving_variance"]
        if training:
            now = {"/moving_mean": x.mean(over), "/moving_variance": x.var(over, unbiased=False)}
            for name, statistic in now.items():
                self.moving[layer + name] = MOMENTUM * self.moving[layer + name] + (1 - MOMENTUM) * statistic.detach()
            mean = variance = None
        return F.batch_norm(x, mean, variance, self.v[layer + "/gamma"], self.v[layer + "/beta"], training, 0, EPSILON)

    def __call__(self, images, training):
        v = self.v
        x = F.conv2d(images.permute(0, 3, 1, 2), v["conv2d/kernel"].permute(3, 2, 0, 1), v["conv2d/bias"])
        x = F.avg_pool2d(torch.tanh(self.normalize(x, "batch_normalization", training)), 2)    # (B, 8, 13, 13)
        x = x.permute(0, 2, 3, 1).reshape(ROWS, -1)                                            # (B, 1352)
        x = self.normalize(x @ v["dense/kernel"] + v["dense/bias"], "batch_normalization_1", training)
        return torch.tanh(x) @ v["dense_1/kernel"] + v["dense_1/bias"]


def compute(dtype):
    images, labels = inputs(dtype)
    network, losses, tensors = Network(dtype), [], {}
    for step in range(STEPS):
        loss = F.cross_entropy(network(images, True), labels)
        for x in network.v.values():
            x.grad = None
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            tensors |= {"gradient/" + name: x.grad.clone() for name, x in network.v.items()}
        with torch.no_grad():
            for x in network.v.values():
                x -= RATE * x.grad
    tensors |= network.moving
    tensors["losses"] = torch.stack(losses)
    tensors["logits"] = network(images, False).detach()
    return tensors


def main(path):
    exact, rounded = compute(torch.float64), compute(torch.float32)
    print(f"{'float32 against float64':38} {'largest':>9} {'error':>9}")
    for name in sorted(exact):
        error = (exact[name] - rounded[name].double()).abs().max().item()
        print(f"{name:38} {exact[name].abs().max().item():9.2e} {error:9.1e}")
    write_safetensors(path, exact,
                      {"computed in": "float64", "made by": "test/golden/make_batch_norm.py", "torch": "1.13"})


if __name__ == "__main__":
    main(sys.argv[1])
