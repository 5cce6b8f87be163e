#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes cnn.safetensors: what PyTorch computes for the small CNN, as numbers to compare with.

    /usr/bin/python3 test/golden/make_cnn.py test/golden/cnn.safetensors

Made with PyTorch 1.13 (Debian's python3-torch 1.13.1) on the CPU, in float64, stored as float32. It prints how far the
same program in float32 is from that; README.md has the table and the tolerances that follow from it.

The network: Conv2D(32, 3x3, valid) ReLU, MaxPool 2x2, Flatten in (H, W, C) order, Dense 64 ReLU, Dense 10 logits,
softmax cross entropy, mean over a batch of 16. Layouts and names are those of tf.keras. Inputs and initial variables
are not stored: `value` below makes them, and formula.hpp makes the same bits.
"""
import json
import struct
import sys

import torch
import torch.nn.functional as F

ROWS, STEPS = 16, 10

# name: (shape, salt, scale); values are (value(i) - 0.5) * scale, near Glorot's limits
VARIABLES = {
    "conv2d/kernel": ((3, 3, 1, 32), 0x2545F491, 2.0**-2),
    "conv2d/bias": ((32,), 0x4F6CDD1D, 2.0**-3),
    "dense/kernel": ((5408, 64), 0x7F4A7C15, 2.0**-4),
    "dense/bias": ((64,), 0x1CE4E5B9, 2.0**-3),
    "dense_1/kernel": ((64, 10), 0x133111EB, 2.0**-1),
    "dense_1/bias": ((10,), 0x5851F42D, 2.0**-3),
}
IMAGES_SALT = 0

# name: (how to make the optimizer, global norm to clip to)
OPTIMIZERS = {
    "adam": (lambda v: torch.optim.Adam(v, lr=1e-3, betas=(0.9, 0.999), eps=1e-7), None),
    "adam_clipped": (lambda v: torch.optim.Adam(v, lr=1e-3, betas=(0.9, 0.999), eps=1e-7), 0.5),
    "adamw": (lambda v: torch.optim.AdamW(v, lr=1e-3, betas=(0.9, 0.999), eps=1e-7, weight_decay=0.01), None),
    "sgd": (lambda v: torch.optim.SGD(v, lr=0.1), None),
    "sgd_clipped": (lambda v: torch.optim.SGD(v, lr=0.1), 0.5),
    "sgd_momentum": (lambda v: torch.optim.SGD(v, lr=0.05, momentum=0.9), None),
    "sgd_nesterov": (lambda v: torch.optim.SGD(v, lr=0.05, momentum=0.9, nesterov=True), None),
}


def value(count, salt):
    """In [0, 1): exact in integers, and in float32, because 24 bits are left."""
    i = torch.arange(count, dtype=torch.int64)
    return ((i * 2654435761 + salt) % 2**32 >> 8).to(torch.float64) * 2.0**-24


def inputs(dtype):
    images = value(ROWS * 28 * 28, IMAGES_SALT).reshape(ROWS, 28, 28, 1).to(dtype)
    return images, torch.arange(ROWS) * 7 % 10


def initial_variables(dtype):
    made = {}
    for name, (shape, salt, scale) in VARIABLES.items():
        count = torch.Size(shape).numel()
        made[name] = ((value(count, salt) - 0.5) * scale).reshape(shape).to(dtype).requires_grad_()
    return made


def forward(v, images):
    """Logits (B, 10), and the convolution's output (B, 32, 26, 26) before ReLU."""
    kernel = v["conv2d/kernel"].permute(3, 2, 0, 1)                         # (KH, KW, Cin, Cout) -> (Cout, Cin, KH, KW)
    convolved = F.conv2d(images.permute(0, 3, 1, 2), kernel, v["conv2d/bias"])
    x = F.max_pool2d(F.relu(convolved), 2)                                  # (B, 32, 13, 13)
    x = x.permute(0, 2, 3, 1).reshape(ROWS, -1)                             # (B, 5408), channels fastest
    x = F.relu(x @ v["dense/kernel"] + v["dense/bias"])
    return x @ v["dense_1/kernel"] + v["dense_1/bias"], convolved


def train(name, dtype):
    """The loss before each of ten steps on the same batch, and the global norms of the gradients."""
    make, clip = OPTIMIZERS[name]
    images, labels = inputs(dtype)
    v = initial_variables(dtype)
    optimizer, losses, norms = make(list(v.values())), [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(v, images)[0], labels)
        loss.backward()
        norm = torch.sqrt(sum((x.grad**2).sum() for x in v.values()))
        if clip is not None and norm > clip:                                # clip / norm, as tf.clip_by_global_norm:
            for x in v.values():                                            # clip_grad_norm_ adds 1e-6 to the norm
                x.grad *= clip / norm
        losses.append(loss.detach())
        norms.append(norm)
        optimizer.step()
    return torch.stack(losses), torch.stack(norms)


def compute(dtype):
    images, labels = inputs(dtype)
    v = initial_variables(dtype)
    logits, convolved = forward(v, images)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    tensors = {"logits": logits.detach(), "loss": loss.detach()}
    tensors |= {"gradient/" + name: x.grad for name, x in v.items()}
    for name in OPTIMIZERS:
        tensors["losses/" + name], norms = train(name, dtype)
        if dtype == torch.float64:
            print(f"{name:14} losses {tensors['losses/' + name][0]:.4f} to {tensors['losses/' + name][-1]:.4f},"
                  f" gradient norm {norms.min():.3f} to {norms.max():.3f}")
    return tensors, convolved.detach()


def smallest_gap(convolved):
    """How near a maximum of the pooling is to the second: below the rounding of float32, it may fall either way."""
    windows = F.relu(convolved).unfold(2, 2, 2).unfold(3, 2, 2).reshape(-1, 4)
    first, second = windows.sort(descending=True).values[:, :2].T
    gap = (first - second)[first > 0]
    return gap.min().item(), (gap < 1e-6).sum().item(), len(gap)


def write_safetensors(path, tensors, metadata):
    header, offset, data = {"__metadata__": metadata}, 0, b""
    for name in sorted(tensors):
        bytes_ = tensors[name].to(torch.float32).contiguous().numpy().astype("<f4").tobytes()
        end = offset + len(bytes_)
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [offset, end]}
        offset, data = end, data + bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main(path):
    torch.manual_seed(0)
    exact, convolved = compute(torch.float64)
    rounded, _ = compute(torch.float32)
    print("pooling: nearest two of a window are %.1e apart; %d of %d are within 1e-6" % smallest_gap(convolved))
    print(f"{'float32 against float64':24} {'largest':>9} {'error':>9} {'relative':>9}")
    for name in sorted(exact):
        largest = exact[name].abs().max().item()
        error = (exact[name] - rounded[name].double()).abs().max().item()
        print(f"{name:24} {largest:9.2e} {error:9.1e} {error / largest:9.1e}")
    write_safetensors(path, exact, {"computed in": "float64", "made by": "test/golden/make_cnn.py", "torch": "1.13"})


if __name__ == "__main__":
    main(sys.argv[1])
