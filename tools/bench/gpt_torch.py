#!/usr/bin/env python3
"""The model of apps/text/gpt.toml on PyTorch's CPU backend, for comparison.

  gpt_torch.py [--threads 2] [--dtype f32|bf16] [--batch 8] [--seconds 20] [--compile]
  gpt_torch.py --text FILE --weights WEIGHTS [--steps 2000 --show 20 --batch 8 --length 256 --seed 7 --heads 6]

The first form measures training tokens/s on random bytes, as `rtbench train --case gpt` does: one JSON line with the
values of five windows. The second one trains on FILE as `rtrun apps/text/gpt.toml --set data.path=FILE --set
train.steps=2000` does on one rank: from the same weights, with the same samples in each step, learning rates and test
set. It prints the loss of the first steps (--show) and the loss per byte of the test set. --batch, --length and --seed
must be the job's data.batch, data.length and train.seed. The warm-up begins with a learning rate of 0, so a job of one
step saves its initial weights:

  rtrun apps/text/gpt.toml --set data.path=FILE --set cluster.nodes=local:1 --set train.steps=1 --set report.dir=first
  ckpt weights first/checkpoints -o WEIGHTS

One process. The settings are the fastest ones of PyTorch that we know: fused attention (scaled_dot_product_attention),
fused AdamW, denormal numbers flushed to zero. Needs torch.
"""
import argparse
import json
import math
import re
import struct
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu-checks"))
from networks_torch import BYTES, make_gpt

WORD = 2**64 - 1


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
    loss = functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return loss


def measure_speed(torch, network, what):
    optimizer = make_optimizer(torch, network, 0.001)
    text = torch.randint(0, BYTES, (512, what.length + 1))

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


def mix(x):
    """As in runtime/base/random.hpp."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def sub_key(key, part):
    return mix((mix(key) + part) & WORD)


def random_below(key, counter, bound):
    return mix(mix(key) ^ counter) * bound >> 64


class TrainingWindows:
    """The first byte of each sample in the order of a job, as SampleOrder and TextWindows in runtime/data find it."""

    def __init__(self, text_bytes, length, seed):
        self.length, self.seed = length, seed
        self.count = (text_bytes - length) // length
        self.epoch = None

    def begin(self, epoch):
        self.epoch, self.order = epoch, list(range(self.count))
        key = sub_key(self.seed, epoch)
        for last in range(self.count - 1, 0, -1):
            other = random_below(key, last, last + 1)
            self.order[last], self.order[other] = self.order[other], self.order[last]
        self.shift = random_below(sub_key(sub_key(self.seed, 0x74657874), epoch), 0, self.length)

    def first_byte(self, position):
        if self.epoch != position // self.count:
            self.begin(position // self.count)
        return self.order[position % self.count] * self.length + self.shift


def read_weights(torch, path):
    """The tensors of a safetensors file of f32, by the names of the network's parameters."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), bytearray(file.read())
    tensors, renamed = {}, {"embedding_1.weight": "embedding.weight", "position_1.weight": "position"}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        numbers = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        name = re.sub(r"^block_(\d+)\.", lambda match: f"blocks.{int(match[1]) - 1}.", name)
        tensors[renamed.get(name, name)] = numbers.view(entry["shape"])
    return tensors


def loss_of(network, rows):
    from torch.nn import functional

    return functional.cross_entropy(network(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train_on_text(torch, network, what):
    with open(what.text, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    split = len(text) - math.floor(0.1 * len(text) + 0.5)
    test = text[split:]
    rate, windows = 0.001, TrainingWindows(split, what.length, what.seed)
    warm = 0.1 * windows.count / what.batch  # steps
    optimizer = make_optimizer(torch, network, rate)
    for step in range(what.steps):
        first = [windows.first_byte(step * what.batch + row) for row in range(what.batch)]
        rows = torch.stack([text[at : at + what.length + 1] for at in first])
        factor = min(1.0, step / warm) * 0.5 * (1 + math.cos(math.pi * step / what.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        loss = take_step(torch, network, optimizer, rows, what, clip=True)
        if step < what.show:
            print(json.dumps(dict(step=step + 1, loss=round(loss.item(), 6))), flush=True)
    with torch.no_grad():
        rows = torch.stack([test[first : first + what.length + 1]
                            for first in range(0, len(test) - what.length, what.length)])
        losses = [loss_of(network, part).item() * len(part) for part in rows.split(32)]
    print(json.dumps(dict(steps=what.steps, seed=what.seed, test_loss=round(sum(losses) / len(rows), 5))))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="bf16: under autocast")
    options.add_argument("--batch", type=int, default=8, help="samples of a step")
    options.add_argument("--seconds", type=float, default=20, help="measured time, after two steps to warm up")
    options.add_argument("--compile", action="store_true", help="torch.compile")
    options.add_argument("--text", metavar="FILE", help="train on these bytes")
    options.add_argument("--weights", metavar="FILE", help="with --text: start from these, of `ckpt weights`; "
                         "without it they are drawn")
    options.add_argument("--show", type=int, default=0, help="with --text: print the loss of this many steps")
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
    network = make_gpt(torch, BYTES, what.length, what.width, what.heads, what.depth)
    if what.weights:
        network.load_state_dict(read_weights(torch, what.weights))
    run = torch.compile(network) if what.compile else network
    (train_on_text if what.text else measure_speed)(torch, run, what)


if __name__ == "__main__":
    main()
