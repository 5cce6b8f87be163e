#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes resnet.safetensors: ResNet-20 in PyTorch, one step with all that it changes, as numbers to compare with.

    python3 test/golden/make_resnet.py test/golden/resnet.safetensors

Made with PyTorch (PyPI's torch, 2.x) in float64, stored as float32; README.md has the tolerances. ResNet-20 of He et
al. on pictures of 32 by 32 pixels, with projections where shapes change: nn.Conv2d, nn.BatchNorm2d, nn.Linear, SGD with
rate 0.1, momentum 0.9 and weight decay 0.01 of kernels alone. Pictures and variables are from `value`, the integer
formula of formula.hpp, not stored; a gamma is 1 more than the formula says.

Of each gradient, and of each variable after the step, the file has every n-th number, so that no more than 1,024 are
stored, and the norm of all. `moving_variance` is PyTorch's, which divides by the count less one; `logits`, of
evaluation after the step, are computed with the variance that divides by the count.
"""
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from make_gan import around_zero, value, write_safetensors

ROWS, STORED, LOSSES = 4, 1024, 2
PICTURES = 0x6341CC9A                                                        # without ties: see nearest_zero


def conv(before, filters, size, step=1):
    return [nn.Conv2d(before, filters, size, step, size // 2, bias=False), nn.BatchNorm2d(filters)]


class Basic(nn.Module):
    def __init__(self, before, width, step):
        super().__init__()
        self.main = nn.Sequential(*conv(before, width, 3, step), nn.ReLU(), *conv(width, width, 3))
        self.shortcut = nn.Sequential(*(conv(before, width, 1, step) if before != width else []))

    def forward(self, x):
        return F.relu(self.main(x) + self.shortcut(x))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.layers = nn.Sequential(*conv(3, 16, 3), nn.ReLU(), *[Basic(*of) for of in widths])
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.layers(x).mean((2, 3)))


def numbered(name, i):
    return f"{name}_{i}" if i else name


def variables(net):
    """Names as ours, in the order of the layers, with what turns a tensor into our layout."""
    counts = {"conv2d": 0, "batch_normalization": 0}
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            yield numbered("conv2d", counts["conv2d"]) + "/kernel", module.weight, (2, 3, 1, 0)
            counts["conv2d"] += 1
        elif isinstance(module, nn.BatchNorm2d):
            name = numbered("batch_normalization", counts["batch_normalization"])
            yield name + "/gamma", module.weight, (0,)
            yield name + "/beta", module.bias, (0,)
            counts["batch_normalization"] += 1
        elif isinstance(module, nn.Linear):
            yield "dense/kernel", module.weight, (1, 0)
            yield "dense/bias", module.bias, (0,)


def ours(tensor, order):
    return tensor.detach().permute(order).contiguous().numpy().copy()


def scale_of(shape):
    """A power of two near sqrt(24 / fan_in), with which a product keeps the size of its numbers."""
    return 2.0 ** np.round(np.log2(np.sqrt(24 / np.prod(shape[:-1])))) if len(shape) > 1 else 0.5


def network(dtype):
    net = ResNet20().to(dtype)
    with torch.no_grad():
        for i, (name, v, order) in enumerate(variables(net)):
            shape = ours(v, order).shape
            numbers = around_zero(shape, 0x101 * (i + 1), scale_of(shape)) + (1 if name.endswith("gamma") else 0)
            back = np.argsort(order)
            v.copy_(torch.tensor(numbers.astype(np.float32)).permute(*back))
    return net


def batch(dtype, salt=PICTURES):
    x = around_zero((ROWS, 32, 32, 3), salt, 4)
    return torch.tensor(x, dtype=dtype).permute(0, 3, 1, 2), torch.arange(ROWS) * 7 % 10


def nearest_zero(salt):
    """The least distance of an input of ReLU from 0, of which rounding could change the sign."""
    net, least = network(torch.float64), []
    relu = F.relu
    F.relu = lambda x, inplace=False: (least.append(x.abs().min().item()), relu(x))[1]
    net(batch(torch.float64, salt)[0])
    F.relu = relu
    return min(least)


def sample(tensors, name, numbers):
    flat = numbers.reshape(-1)
    tensors[name] = flat[::-(-flat.size // STORED)]
    tensors["norm/" + name] = np.sqrt((flat.astype(np.float64) ** 2).sum(keepdims=True))


def compute(dtype):
    net, (x, y) = network(dtype), batch(dtype)
    named = list(variables(net))
    rule = torch.optim.SGD([{"params": [v for name, v, _ in named if name.endswith("kernel")], "weight_decay": 0.01},
                            {"params": [v for name, v, _ in named if not name.endswith("kernel")]}],
                           lr=0.1, momentum=0.9)
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    counts = {}
    for module in norms:
        module.register_forward_hook(lambda m, x, _: counts.__setitem__(m, x[0].numel() // x[0].shape[1]))
    tensors, losses = {}, []
    for step in range(LOSSES):
        rule.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        losses.append(loss.item())
        rule.step()
        if step > 0:
            continue
        for name, v, order in named:
            sample(tensors, "gradient/" + name, ours(v.grad, order))
            sample(tensors, "variable/" + name, ours(v, order))
        for i, module in enumerate(norms):
            tensors[numbered("batch_normalization", i) + "/moving_mean"] = module.running_mean.numpy().copy()
            tensors[numbered("batch_normalization", i) + "/moving_variance"] = module.running_var.numpy().copy()
        theirs = [module.running_var.clone() for module in norms]
        for module in norms:
            n = counts[module]
            module.running_var.copy_(0.9 + (module.running_var - 0.9) * (n - 1) / n)
        net.eval()
        tensors["logits"] = net(x).detach().numpy()
        net.train()
        for module, variance in zip(norms, theirs):
            module.running_var.copy_(variance)
    tensors["losses"] = np.array(losses)
    return tensors


def main():
    print(f"the input of ReLU nearest to 0 is {nearest_zero(PICTURES):.1e}")
    exact, rounded = compute(torch.float64), compute(torch.float32)
    worst = {}
    for name in exact:
        kind = name if "/" not in name else name.split("/")[-1 if name.startswith("batch") else 0]
        kind = "norm/" + name.split("/")[1] if kind == "norm" else kind
        error = np.abs(exact[name] - rounded[name]).max()
        largest = np.abs(exact[name]).max()
        before = worst.get(kind, (0, 0, 0))
        worst[kind] = (max(before[0], largest), max(before[1], error), max(before[2], error / largest))
    print(f"{'float32 against float64':24} {'largest':>9} {'error':>9} {'relative':>9}")
    for kind, (largest, error, relative) in sorted(worst.items()):
        print(f"{kind:24} {largest:9.2e} {error:9.1e} {relative:9.1e}")
    write_safetensors(sys.argv[1], exact, "make_resnet.py")


if __name__ == "__main__":
    main()
