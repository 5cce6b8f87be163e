#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gpt2_124m.safetensors: GPT-2 of 124 million numbers in transformers, a step and ten losses, to compare with.

    python3 test/golden/make_gpt2_124m.py test/golden/gpt2_124m.safetensors

Made with PyTorch and transformers (PyPI's torch 2.x and transformers 5.x) in float64, 4 rows of 64 words; README.md has
the tolerances. Weights are of `mixed`, the formula of formula.hpp, and not stored, nor is all that comes of them: of
logits and gradients there are some numbers, evenly apart, and norms. AdamW as in llm.c's test: rate 1e-4, decay 0.01 of
every variable.
"""
import sys

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from make_gan import write_safetensors

ROWS, STEPS, UPDATES, SAMPLES = 4, 64, 10, 32
PARTS = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
         "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"]


def mixed(count, salt):
    """In [0, 1), a multiple of 2^-24: MurmurHash3's last step, of each index."""
    i = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(salt)
    i = (i ^ (i >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    i = (i ^ (i >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return ((i ^ (i >> np.uint32(16))) >> np.uint32(8)).astype(np.float64) * 2.0**-24


def names(layers):
    """In the order of our plan; a name's place gives its salt."""
    yield "transformer.wte.weight"
    yield "transformer.wpe.weight"
    for i in range(layers):
        yield from (f"transformer.h.{i}.{part}" for part in PARTS)
    yield "transformer.ln_f.weight"
    yield "transformer.ln_f.bias"


def network(dtype):
    net = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).to(dtype)
    parameters = dict(net.named_parameters())
    with torch.no_grad():
        for n, name in enumerate(names(12)):
            p = parameters.pop(name)
            made = (mixed(p.numel(), 0x101 * (n + 1)) - 0.5) * 2.0**-4
            if ".ln_" in name and name.endswith("weight"):
                made = made.astype(np.float32).astype(np.float64) + 1
            p.copy_(torch.tensor(made.astype(np.float32).reshape(p.shape)))
    assert not parameters, parameters.keys()
    return net


def sampled(tensor):
    flat = tensor.detach().reshape(-1).double().numpy()
    return flat[:: max(1, len(flat) // SAMPLES)][:SAMPLES].copy()


def compute(dtype):
    net = network(dtype)
    numbers = (mixed(ROWS * (STEPS + 1), 0x9999) * 50257).astype(np.int64).reshape(ROWS, STEPS + 1)
    text, following = torch.tensor(numbers[:, :-1]), torch.tensor(numbers[:, 1:])
    rule = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    tensors, losses = {}, []
    for step in range(UPDATES):
        rule.zero_grad()
        logits = net(text).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            tensors["logits"] = logits.detach()[:, :, ::3142].reshape(ROWS * STEPS, 16).double().numpy().copy()
            tensors["log_sums"] = torch.logsumexp(logits.detach().double(), -1).reshape(-1).numpy()
            for name, p in net.named_parameters():
                tensors[f"gradient/{name}"] = sampled(p.grad)
                tensors[f"norm/{name}"] = np.array([p.grad.double().norm().item()])
        rule.step()
        print(step, losses[-1], flush=True)
    tensors["losses"] = np.array(losses)
    return tensors


def main():
    rounded, exact = compute(torch.float32), compute(torch.float64)
    print(f"{'float32 against float64':44} {'largest':>9} {'error':>9}")
    for kind in ("logits", "log_sums", "losses"):
        print(f"{kind:44} {np.abs(exact[kind]).max():9.2e} {np.abs(exact[kind] - rounded[kind]).max():9.1e}")
    for name in exact:
        if name.startswith("gradient/") and (".h." not in name or ".h.0." in name):
            norm = exact["norm/" + name[9:]][0]
            print(f"{name:44} {norm:9.2e} {np.abs(exact[name] - rounded[name]).max() / np.abs(exact[name]).max():9.1e}")
    write_safetensors(sys.argv[1], exact, "make_gpt2_124m.py")


if __name__ == "__main__":
    main()
