#!/usr/bin/env python3
"""Exported models give, in onnxruntime, what PyTorch computed for the golden files.

Usage: onnx_outputs_test.py ONNX_TEST GOLDEN_FOLDER. ONNX_TEST writes the model of each golden file with the numbers that
it starts from; the loss of its first batch, computed here from the outputs, must be that of the file's evaluation, and
as many predictions must be right. Skips without onnxruntime (pip install onnxruntime).
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}; pip install onnxruntime")
    sys.exit(0)

WITHIN = 2e-5  # of f32


def attribute(entry, name, default):
    found = re.search(rf"\b{name} = (-?[\d.e-]+)", entry)
    return float(found[1]) if found else default


def softmax_cross_entropy(entry, logits, labels):
    labels = labels.reshape(-1)
    logits = logits.reshape(len(labels), -1).astype(np.float64)
    counts = (labels >= 0) & (labels != attribute(entry, "ignore", -1))
    logits, labels = logits[counts], labels[counts].astype(np.int64)
    below = logits - logits.max(1, keepdims=True)
    log_shares = below - np.log(np.exp(below).sum(1, keepdims=True))
    smoothing = attribute(entry, "smoothing", 0)
    loss = -(1 - smoothing) * log_shares[np.arange(len(labels)), labels] - smoothing * log_shares.mean(1)
    return attribute(entry, "weight", 1) * loss.sum(), int((logits.argmax(1) == labels).sum())


def smooth_l1(entry, x, targets):
    beta = attribute(entry, "beta", 1)
    distance = np.abs(x.reshape(len(x), -1).astype(np.float64) - targets.reshape(len(x), -1))
    loss = np.where(distance < beta, distance**2 / (2 * beta), distance - beta / 2)
    return attribute(entry, "weight", 1) * loss.mean(1).sum(), 0


def sigmoid_cross_entropy(entry, x, targets):
    x, targets = x.reshape(len(x), -1).astype(np.float64), targets.reshape(len(x), -1)
    known = targets >= 0
    loss = np.maximum(x, 0) - x * targets + np.log1p(np.exp(-np.abs(x)))
    each = np.where(known, loss, 0).sum(1) / np.maximum(known.sum(1), 1)
    right = (((x > 0) == (targets > 0.5)) | ~known).all(1) & known.any(1)
    return attribute(entry, "weight", 1) * each.sum(), int(right.sum())


LOSSES = {"softmax_cross_entropy": softmax_cross_entropy, "smooth_l1": smooth_l1,
          "sigmoid_cross_entropy": sigmoid_cross_entropy}


def losses_of(case):
    """Of each loss: its kind, its text, and the field that it reads."""
    found = []
    for entry in case["layers"]:
        kind = next((name for name in LOSSES if name in entry), None)
        if kind:
            inputs = re.search(r"inputs = \['[^']*', '([^']*)'", entry)
            found.append((kind, entry, inputs[1] if inputs else "label"))
    last = case["layers"][-1]
    return found if any(name in last for name in LOSSES) else [*found, ("softmax_cross_entropy", "", "label")]


def check(case, model):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    fields = {field["name"]: (case["rows"], *field["shape"]) for field in case["fields"]}
    batch = {name: np.array(case["batches"][0][name]).reshape(shape) for name, shape in fields.items()}
    feed = {read.name: batch[read.name].astype(np.int64 if "int64" in read.type else np.float32)
            for read in session.get_inputs()}
    outputs = session.run(None, feed)
    losses = losses_of(case)
    assert len(outputs) == len(losses), f"{len(outputs)} outputs for {len(losses)} losses"
    sums = [LOSSES[kind](entry, output, batch[field]) for (kind, entry, field), output in zip(losses, outputs)]
    loss, wanted = sum(part[0] for part in sums), case["evaluation"]["loss"]
    assert abs(loss - wanted) <= WITHIN * max(1, abs(wanted)), f"the loss is {loss}, PyTorch's {wanted}"
    assert sums[-1][1] == case["evaluation"]["correct"], f"{sums[-1][1]} are right, in PyTorch {case['evaluation']}"


def main():
    program, golden = sys.argv[1], Path(sys.argv[2])
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "--gtest_filter=OnnxExport.WritesTheGoldenCases"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "TROUPE_ONNX_FOLDER": folder}, timeout=50)
        cases = sorted(golden.glob("*.json"))
        assert cases, f"{golden} has no golden files"
        for path in cases:
            try:
                check(json.loads(path.read_text()), os.path.join(folder, path.stem + ".onnx"))
            except Exception as error:  # the others are told too
                failed.append(path.stem)
                print(f"{path.stem}: {error}")
    print(f"{len(cases) - len(failed)} of {len(cases)} models agree")
    sys.exit(1 if failed else 0)


main()
