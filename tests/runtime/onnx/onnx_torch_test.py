#!/usr/bin/env python3
"""Models that PyTorch exports compute the same after they were read and written again.

Usage: onnx_torch_test.py ONNX_TEST. Exports each model by both exporters (the newer one where onnxscript is installed),
with several opsets, with a fixed and with any number of rows; ONNX_TEST reads each, trains it for a step and writes it
again, and onnxruntime must then give what PyTorch computed. Skips without torch and onnxruntime (pip install torch onnx onnxruntime onnxscript).
"""
import copy
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

try:
    import numpy as np
    import onnx  # noqa: F401, which the exporters need
    import onnxruntime
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch onnx onnxruntime onnxscript")
    sys.exit(0)
try:
    import onnxscript  # noqa: F401
    HAS_NEWER = True
except ImportError:
    HAS_NEWER = False

WITHIN = 1e-4
TOKENS, LENGTH, WIDTH, HEADS = 31, 12, 24, 3


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5), nn.Conv2d(4, 6, 5)
        self.fc1, self.fc2 = nn.Linear(96, 20), nn.Linear(20, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.max_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.fc2(torch.tanh(self.fc1(x.view(x.size(0), -1))))


def convnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2),
                         nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6), nn.GELU(), nn.Dropout(0.25), nn.AvgPool2d(2),
                         nn.Flatten(), nn.Linear(6 * 3 * 3, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10))


class Residual(nn.Module):
    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, filters, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(filters), nn.BatchNorm2d(filters)
        self.down = nn.Sequential(nn.Conv2d(inputs, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.down(x))


def resnet():
    return nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                         Residual(8, 8, 1), Residual(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10))


class Block(nn.Module):
    """`how`: by scaled_dot_product_attention of one dense layer ("fused") or of three ("apart"), or by matmuls."""

    def __init__(self, how, causal):
        super().__init__()
        self.how, self.causal = how, causal
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3)) if how == "apart" else \
            nn.Linear(WIDTH, 3 * WIDTH)
        self.proj, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def attend(self, x):
        rows, length, width = x.shape
        parts = [one(x) for one in self.qkv] if self.how == "apart" else self.qkv(x).split(width, dim=2)
        q, k, v = [part.view(rows, length, HEADS, width // HEADS).transpose(1, 2) for part in parts]
        if self.how == "matmuls":
            scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(width // HEADS))
            if self.causal:
                scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
            y = F.softmax(scores, -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).contiguous().view(rows, length, width))

    def forward(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Decoder(nn.Module):
    def __init__(self, how, causal=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH + 4, WIDTH)
        self.block, self.ln = Block(how, causal), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens):
        return self.head(self.ln(self.block(self.wte(tokens) + self.wpe(torch.arange(tokens.size(1))))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.read, self.place = nn.Linear(6, 16), nn.Parameter(torch.randn(1, 10, 16) * 0.1)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(160, 10)

    def forward(self, x):
        return self.out(self.encoder(self.read(x) + self.place).flatten(1))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.norm = nn.Linear(9, 12), nn.Linear(12, 12), nn.Linear(12, 10), nn.LayerNorm(12)

    def forward(self, x):
        h = self.norm(F.gelu(self.a(x)))
        return self.c(h).argmax(1), self.c(torch.sigmoid(self.b(h)) * h)


def settled(model):
    """With running statistics as after training."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1e-7
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return model.eval()


def cases():
    tokens, image = torch.randint(0, TOKENS, (2, LENGTH)), torch.randn(2, 3, 16, 16)
    return {"lenet": (LeNet(), torch.randn(2, 1, 28, 28)), "convnet": (convnet(), image), "resnet": (resnet(), image),
            "fused": (Decoder("fused"), tokens), "apart": (Decoder("apart"), tokens),
            "matmuls": (Decoder("matmuls"), tokens), "all": (Decoder("fused", causal=False), tokens),
            "encoder": (Encoder(), torch.randn(2, 10, 6)), "two": (Two(), torch.randn(2, 9))}


def export(model, x, path, how, opset, any_rows):
    model, mode = copy.deepcopy(model), torch.onnx.TrainingMode.EVAL
    if how == "training":
        model, mode = model.train(), torch.onnx.TrainingMode.TRAINING
    if how == "newer":
        shapes = ({0: torch.export.Dim("rows")},) if any_rows else None
        torch.onnx.export(model, (x,), path, opset_version=opset, dynamo=True, dynamic_shapes=shapes, verbose=False)
    else:
        axes = {"x": {0: "rows"}} if any_rows else None
        torch.onnx.export(model, (x,), path, opset_version=opset, dynamo=False, input_names=["x"], dynamic_axes=axes,
                          training=mode, do_constant_folding=how != "training")


def plans(name):
    """Of a model: exporter, opset, any number of rows."""
    has_operator = name in ("fused", "apart", "all")  # which the older exporter knows since opset 14
    if name != "encoder":  # which it does not know as it is evaluated
        yield from (("older", opset, any_rows) for opset, any_rows in
                    (((17, True), (20, False)) if has_operator else ((11, True), (13, False), (20, True))))
    if name in ("convnet", "resnet"):
        yield from (("training", opset, True) for opset in (11, 17))
    if HAS_NEWER:
        yield from (("newer", opset, any_rows) for opset, any_rows in ((18, True), (23, False)))


def outputs_of(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    wanted, failed = {}, []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, (model, x) in cases().items():
            model = settled(model)
            with torch.no_grad():
                found = model(x)
                found = found[-1] if isinstance(found, tuple) else found
                for how, opset, any_rows in plans(name):
                    stem = f"{name}.{how}{opset}{'.any' if any_rows else ''}"
                    export(model, x, str(folder / f"{stem}.onnx"), how, opset, any_rows)
                    wanted[stem] = (x.numpy(), found.numpy())
                    extents = list(x.shape[1:])
                    facts = {"extents": [*extents[1:], extents[0]] if len(extents) == 3 else extents,
                             "tokens": 0 if x.is_floating_point() else TOKENS,
                             "classes": found.shape[-1],
                             "output": onnx.load(folder / f"{stem}.onnx").graph.output[-1].name}
                    (folder / f"{stem}.json").write_text(json.dumps(facts))
        ran = subprocess.run([sys.argv[1], "--gtest_filter=*WhatOtherProgramsWrote*"], timeout=200, text=True,
                             stdout=subprocess.PIPE, env={**os.environ, "TROUPE_ONNX_FOLDER": scratch}, check=False)
        if ran.returncode != 0:
            failed.append("a test")
            print(ran.stdout)
        for stem, (x, y) in wanted.items():
            refused = folder / f"{stem}.refused"
            if refused.exists():
                failed.append(stem)
                print(f"{stem}: {refused.read_text()}")
                continue
            last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x
            found = outputs_of(folder / f"{stem}.again.onnx", last)
            if found.shape != y.shape or np.abs(found - y).max() > WITHIN * max(1, np.abs(y).max()):
                failed.append(stem)
                print(f"{stem}: differs by {np.abs(found - y).max() if found.shape == y.shape else found.shape}")
    newer = "" if HAS_NEWER else "; the newer exporter was left out, since onnxscript is not installed"
    print(f"{len(wanted) - len(failed)} of {len(wanted)} files agree{newer}")
    sys.exit(1 if failed else 0)


main()
