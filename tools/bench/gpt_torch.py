#!/usr/bin/env python3
"""Training tokens/s of the network of `rtbench train --case gpt` on PyTorch's CPU backend, to compare with.

  gpt_torch.py [--threads 2] [--dtype f32|bf16] [--batch 8] [--seconds 20] [--compile]

One process. The fastest PyTorch that we know of: fused attention (scaled_dot_product_attention), fused AdamW, denormal
numbers flushed to zero. Prints one JSON line with the values of five windows, as rtbench does. Needs torch.
"""
import argparse
import json
import time


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
            self.position = nn.Parameter(torch.zeros(length, width))
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, tokens):
            x = self.embedding(tokens) + self.position
            for block in self.blocks:
                x = block(x)
            return self.logits(self.norm(x))

    return Gpt()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="bf16: under autocast")
    options.add_argument("--batch", type=int, default=8, help="samples of 256 tokens")
    options.add_argument("--seconds", type=float, default=20, help="measured time, after two steps to warm up")
    options.add_argument("--compile", action="store_true", help="torch.compile")
    what = options.parse_args()

    import torch
    from torch.nn import functional

    torch.manual_seed(1)
    torch.set_num_threads(what.threads)
    torch.set_flush_denormal(True)
    vocabulary, length = 256, 256
    network = make_network(torch, vocabulary, length, width=384, heads=6, depth=6)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.001, fused=True)
    run = torch.compile(network) if what.compile else network
    text = torch.randint(0, vocabulary, (512, length + 1))

    def step():
        rows = text[torch.randint(0, len(text), (what.batch,))]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=what.dtype == "bf16"):
            logits = run(rows[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    for _ in range(2):
        step()
    windows, values = 5, []
    for _ in range(windows):
        begun, steps = time.perf_counter(), 0
        while time.perf_counter() - begun < what.seconds / windows:
            step()
            steps += 1
        values.append(round(steps * what.batch * length / (time.perf_counter() - begun), 2))
    print(json.dumps(dict(bench="train", impl=f"torch-{what.dtype}", case=f"gpt 1px{what.threads}t", np=1, unit="samples/s",
                          v=values, parameters=sum(p.numel() for p in network.parameters()))))


if __name__ == "__main__":
    main()
