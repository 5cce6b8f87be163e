#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models of bench/models in PyTorch: for each line with a number of steps, prints "ms_per_step N megabytes M": the
median, and by how much memory has grown at the most.

A fused optimizer, subnormal numbers flushed, gradients set to None; with --compiled the network and its loss go through
torch.compile. Images are channels last. Tables have sparse gradients where the optimizer takes them."""
import argparse
import resource
import sys
import time

import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                    nn.Linear(32 * 13 * 13, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x, y):
        return F.cross_entropy(self.layers(x), y)


class Block(nn.Module):
    def __init__(self, width=128, heads=4, approximate="none"):
        super().__init__()
        self.heads, self.approximate = heads, approximate
        self.norm, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.queries_keys_values(self.norm(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.mixed(y)
        return x + self.narrow(F.gelu(self.wide(self.norm_2(x)), approximate=self.approximate))


class CharacterGpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters, self.places = nn.Embedding(65, 128), nn.Embedding(64, 128)
        self.blocks, self.last = nn.Sequential(*[Block() for _ in range(4)]), nn.LayerNorm(128)

    def forward(self, text, following):
        x = self.last(self.blocks(self.characters(text) + self.places.weight))
        return F.cross_entropy(F.linear(x, self.characters.weight).flatten(0, 1), following.flatten())


class Gpt2(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.recompute = recompute
        self.words, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.blocks, self.last = nn.ModuleList([Block(768, 12, "tanh") for _ in range(12)]), nn.LayerNorm(768)

    def forward(self, text, following):
        x = self.words(text) + self.places.weight[:64]
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return F.cross_entropy(F.linear(self.last(x), self.words.weight).flatten(0, 1), following.flatten())


class Tickets(nn.Module):
    def __init__(self):
        super().__init__()
        self.title_words, self.body_words = nn.Embedding(10_000, 64), nn.Embedding(10_000, 64)
        self.title_reader = nn.LSTM(64, 128, batch_first=True)
        self.body_reader = nn.LSTM(64, 32, batch_first=True)
        self.priority, self.department = nn.Linear(172, 1), nn.Linear(172, 4)

    def forward(self, title, body, tags, priority, department):
        _, (from_title, _) = self.title_reader(self.title_words(title))
        _, (from_body, _) = self.body_reader(self.body_words(body))
        x = torch.cat([from_title[0], from_body[0], tags], 1)
        return (F.binary_cross_entropy_with_logits(self.priority(x), priority) +
                0.2 * F.cross_entropy(self.department(x), department))


def network(*widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


TABLES = (1_000_000, 500_000, 100_000, 10_000, 1_000, 100)


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, 64, mode="mean", sparse=True) for rows in TABLES)
        self.bottom, self.top = network(13, 512, 256, 64), network(64 + 21, 512, 256)
        self.click = nn.Linear(256, 1)
        self.register_buffer("pairs", torch.tril_indices(7, 7, -1))

    def forward(self, numbers, clicked, *bags):
        x = self.bottom(numbers)
        all_ = torch.stack([x, *(table(ids) for table, ids in zip(self.tables, bags))], 1)
        products = torch.bmm(all_, all_.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return F.binary_cross_entropy_with_logits(self.click(self.top(torch.cat([x, products], 1))), clicked)


def conv(before, filters, size, step=1):
    return [nn.Conv2d(before, filters, size, step, size // 2, bias=False), nn.BatchNorm2d(filters)]


class Bottleneck(nn.Module):
    def __init__(self, before, width, step):
        super().__init__()
        self.main = nn.Sequential(*conv(before, width, 1), nn.ReLU(inplace=True), *conv(width, width, 3, step),
                                  nn.ReLU(inplace=True), *conv(width, 4 * width, 1))
        self.shortcut = nn.Sequential(*conv(before, 4 * width, 1, step)) if before != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.main(x).add_(self.shortcut(x)), inplace=True)


class ResNet50(nn.Module):
    """torchvision.models.resnet50."""

    def __init__(self):
        super().__init__()
        layers, before = [*conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
        for width, blocks, step in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(blocks):
                layers.append(Bottleneck(before, width, step if i == 0 else 1))
                before = 4 * width
        self.layers, self.last = nn.Sequential(*layers), nn.Linear(2048, 1000)

    def forward(self, x, y):
        return F.cross_entropy(self.last(self.layers(x).mean((2, 3))), y)


def leaky(*widths):
    return [layer for before, after in zip(widths, widths[1:])
            for layer in (nn.Linear(before, after), nn.LeakyReLU(0.2))]


def gan(batch, compiled):
    generator = nn.Sequential(*leaky(100, 256, 512), nn.Linear(512, 784), nn.Tanh())
    critic = nn.Sequential(*leaky(784, 512, 256), nn.Linear(256, 1))
    rules = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True) for net in (generator, critic)]
    if compiled:
        generator, critic = torch.compile(generator), torch.compile(critic)
    noise, real = torch.rand(batch, 100), torch.rand(batch, 784)
    is_real = torch.cat([torch.ones(batch, 1), torch.zeros(batch, 1)])
    ones = torch.ones(batch, 1)
    parameters = list(critic.parameters())

    def step():
        made = generator(noise)
        rules[1].zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(critic(torch.cat([real, made.detach()])), is_real).backward()
        rules[1].step()
        for parameter in parameters:                                        # their gradients are not needed here
            parameter.requires_grad_(False)
        rules[0].zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(critic(made), ones).backward()
        rules[0].step()
        for parameter in parameters:
            parameter.requires_grad_(True)
    return step


def data_of(model, n):
    if model == "lenet":
        return LeNet(), [torch.rand(n, 1, 28, 28), torch.randint(0, 10, (n,))]
    if model == "resnet":
        images = torch.rand(n, 3, 224, 224).contiguous(memory_format=torch.channels_last)
        return ResNet50().to(memory_format=torch.channels_last), [images, torch.randint(0, 1000, (n,))]
    if model == "character_gpt":
        return CharacterGpt(), [torch.randint(0, 65, (n, 64)), torch.randint(0, 65, (n, 64))]
    if model.startswith("gpt2"):
        return (Gpt2(model == "gpt2_recompute"),
                [torch.randint(0, 50257, (n, 64)), torch.randint(0, 50257, (n, 64))])
    if model == "tickets":
        return Tickets(), [torch.randint(0, 10_000, (n, 40)), torch.randint(0, 10_000, (n, 200)), torch.rand(n, 12),
                           (torch.arange(n) % 2).float().view(n, 1), torch.randint(0, 4, (n,))]
    bags = [(torch.rand(n, 10) ** 4 * rows).long() for rows in TABLES]
    return Dlrm(), [torch.rand(n, 13), (torch.arange(n) % 2).float().view(n, 1), *bags]


def rule_of(model, net):
    if model == "dlrm":
        return torch.optim.SGD(net.parameters(), lr=0.1)
    if model == "resnet":
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    if model.startswith("gpt2"):
        return torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    if model != "character_gpt":
        return torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    matrices = [p for name, p in net.named_parameters() if p.ndim == 2]
    others = [p for name, p in net.named_parameters() if p.ndim != 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                             lr=1e-3, fused=True)


def step_of(model, batch, compiled):
    if model == "gan":
        return gan(batch, compiled)
    net, data = data_of(model, batch)
    rule, loss = rule_of(model, net), torch.compile(net) if compiled else net
    clipped = list(net.parameters()) if model == "character_gpt" else None

    def step():
        rule.zero_grad(set_to_none=True)
        loss(*data).backward()
        if clipped:
            nn.utils.clip_grad_norm_(clipped, 1.0)
        rule.step()
    return step


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("model", choices=("lenet", "character_gpt", "tickets", "dlrm", "resnet", "gan", "gpt2",
                                           "gpt2_recompute"))
    flags.add_argument("--batch", type=int, required=True)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--compiled", action="store_true")
    args = flags.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    before = int(open("/proc/self/statm", encoding="ascii").read().split()[1]) * resource.getpagesize() / 2**20
    step = step_of(args.model, args.batch, args.compiled)
    fewer = 10 if args.model.startswith("gpt2") else 1
    for _ in range(3):
        step()
    print("ready", torch.__version__, flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(max(1, int(line) // fewer)):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print("ms_per_step", sorted(times)[len(times) // 2] * 1e3, "megabytes", most - before, flush=True)


if __name__ == "__main__":
    main()
