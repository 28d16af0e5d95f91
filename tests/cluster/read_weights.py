"""Reads weights that Troupe saved without a line of Troupe, and computes with them.

    read_weights.py test WEIGHTS IMAGES LABELS   one line of JSON: what the network makes of a test set
    read_weights.py compare FILE...              whether the safetensors package reads the same from the files
"""
import gzip
import json
import struct
import sys

import numpy as np


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[slice(*tensor["data_offsets"])], "<f4").reshape(tensor["shape"])
            for name, tensor in header.items()}


def forward(weights, images):
    """Log-probabilities [images, classes] of a network of dense layers with a ReLU between them."""
    layers = len(weights) // 2
    x = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    for i in range(1, layers + 1):
        x = x @ weights[f"l{i}.weight"].T + weights[f"l{i}.bias"]
        if i < layers:
            x = np.maximum(x, 0)
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def read_idx(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    shape = struct.unpack(">" + "I" * data[3], data[4:4 + 4 * data[3]])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def test(weights, images, labels):
    labels = read_idx(labels).astype(int)
    log_probabilities = forward(read_safetensors(weights), read_idx(images))
    print(json.dumps({"samples": len(labels),
                      "correct": int((log_probabilities.argmax(axis=1) == labels).sum()),
                      "loss": float(-log_probabilities[np.arange(len(labels)), labels].mean(dtype=np.float64)),
                      "first": log_probabilities[:20].astype(float).tolist()}))


def compare(*files):
    from safetensors.numpy import load_file
    for path in files:
        ours, theirs = read_safetensors(path), load_file(path)
        same = ours.keys() == theirs.keys() and all(np.array_equal(ours[key], theirs[key]) for key in ours)
        print(path, f"{len(ours)} tensors", "the same" if same else "NOT THE SAME")


if __name__ == "__main__":
    {"test": test, "compare": compare}[sys.argv[1]](*sys.argv[2:])
