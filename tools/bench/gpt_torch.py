#!/usr/bin/env python3
"""The model of apps/text/gpt.toml on PyTorch's CPU backend, for comparison.

  gpt_torch.py [--threads 2] [--dtype f32|bf16] [--batch 8] [--seconds 20] [--compile]
  gpt_torch.py --text FILE --steps 2000 [--depth 6 --width 384 --heads 6 --length 256 --seed 7]

The first form measures training tokens/s on random bytes, as `rtbench train --case gpt` does: one JSON line with the
values of five windows. The second one trains on FILE as `rtrun apps/text/gpt.toml --set data.path=FILE --set
train.steps=2000` does on one rank, with the same distribution of initial weights, the same learning rates and the
same division of the file, and prints the loss per byte of the test set. Random numbers differ.

One process. The settings are the fastest ones of PyTorch that we know: fused attention (scaled_dot_product_attention),
fused AdamW, denormal numbers flushed to zero. Needs torch.
"""
import argparse
import json
import math
import time

VOCABULARY = 256  # bytes


def make_network(torch, vocabulary, length, width, heads, depth):
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query_key_value, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            rows, places, _ = x.shape
            cut = self.query_key_value(self.attention_norm(x)).view(rows, places, 3, heads, width // heads)
            query, key, value = cut.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.projection(mixed.transpose(1, 2).reshape(rows, places, width))
            return x + self.contract(functional.gelu(self.expand(self.mlp_norm(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.position = nn.Parameter(0.02 * torch.randn(length, width))
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, vocabulary)
            nn.init.normal_(self.embedding.weight, std=0.02)
            for module in self.modules():
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=module.in_features**-0.5)
                    nn.init.zeros_(module.bias)

        def forward(self, tokens):
            x = self.embedding(tokens) + self.position
            for block in self.blocks:
                x = block(x)
            return self.logits(self.norm(x))

    return Gpt()


def make_optimizer(torch, network, rate):
    decayed = [p for name, p in network.named_parameters() if not (name.endswith("bias") or "norm" in name)]
    others = [p for name, p in network.named_parameters() if name.endswith("bias") or "norm" in name]
    groups = [dict(params=decayed, weight_decay=0.01), dict(params=others, weight_decay=0)]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


def take_step(torch, network, optimizer, rows, what, clip):
    from torch.nn import functional

    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=what.dtype == "bf16"):
        logits = network(rows[:, :-1])
    functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten()).backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()


def measure_speed(torch, network, what):
    optimizer = make_optimizer(torch, network, 0.001)
    text = torch.randint(0, VOCABULARY, (512, what.length + 1))

    def step():
        take_step(torch, network, optimizer, text[torch.randint(0, len(text), (what.batch,))], what, clip=False)

    for _ in range(2):
        step()
    windows, values = 5, []
    for _ in range(windows):
        begun, steps = time.perf_counter(), 0
        while time.perf_counter() - begun < what.seconds / windows:
            step()
            steps += 1
        values.append(round(steps * what.batch * what.length / (time.perf_counter() - begun), 2))
    print(json.dumps(dict(bench="train", impl=f"torch-{what.dtype}", case=f"gpt 1px{what.threads}t", np=1,
                          unit="samples/s", v=values, parameters=sum(p.numel() for p in network.parameters()))))


def train_on_text(torch, network, what):
    from torch.nn import functional

    with open(what.text, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    split = len(text) - int(0.1 * len(text))
    train, test = text[:split], text[split:]
    rate, windows = 0.001, (len(train) - what.length) // what.length
    warm = 0.1 * windows / what.batch  # steps
    optimizer = make_optimizer(torch, network, rate)
    order = torch.randperm(windows)
    for step in range(what.steps):
        at = step * what.batch % windows
        if at < what.batch:
            order, shift = torch.randperm(windows), int(torch.randint(0, what.length, ()))
        chosen = order[at : at + what.batch] * what.length + shift
        rows = torch.stack([train[first : first + what.length + 1] for first in chosen.tolist()
                            if first + what.length < len(train)])
        factor = min(1.0, step / warm) * 0.5 * (1 + math.cos(math.pi * step / what.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        take_step(torch, network, optimizer, rows, what, clip=True)
    with torch.no_grad():
        rows = torch.stack([test[first : first + what.length + 1]
                            for first in range(0, len(test) - what.length, what.length)])
        losses = [functional.cross_entropy(network(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()).item() * len(part)
                  for part in rows.split(32)]
    print(json.dumps(dict(steps=what.steps, seed=what.seed, test_loss=round(sum(losses) / len(rows), 5))))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="bf16: under autocast")
    options.add_argument("--batch", type=int, default=8, help="samples of a step")
    options.add_argument("--seconds", type=float, default=20, help="measured time, after two steps to warm up")
    options.add_argument("--compile", action="store_true", help="torch.compile")
    options.add_argument("--text", metavar="FILE", help="train on these bytes")
    options.add_argument("--steps", type=int, default=2000)
    options.add_argument("--depth", type=int, default=6)
    options.add_argument("--width", type=int, default=384)
    options.add_argument("--heads", type=int, default=6)
    options.add_argument("--length", type=int, default=256, help="bytes of a sample")
    options.add_argument("--seed", type=int, default=7)
    what = options.parse_args()

    import torch

    torch.manual_seed(what.seed)
    torch.set_num_threads(what.threads)
    torch.set_flush_denormal(True)
    network = make_network(torch, VOCABULARY, what.length, what.width, what.heads, what.depth)
    run = torch.compile(network) if what.compile else network
    (train_on_text if what.text else measure_speed)(torch, run, what)


if __name__ == "__main__":
    main()
