#!/usr/bin/env python3
"""A small folder of PNG images, one folder a class, of a binary file of CIFAR-10.

Usage: cifar_folder.py FILE FOLDER [IMAGES]. FILE is a data_batch_N.bin, plain or .gz; FOLDER gets train/CLASS/N.png of the
first IMAGES images (default 200) and val/CLASS/N.png of a quarter as many behind them. For apps/imagenet/resnet50.toml, which
enlarges them.
"""
import gzip
import struct
import sys
import zlib
from pathlib import Path

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE


def png(planes):
    """Of 3 planes of SIDE x SIDE bytes: red, green, blue."""
    area = SIDE * SIDE
    rows = b"".join(
        b"\0" + bytes(planes[channel * area + row * SIDE + column] for column in range(SIDE) for channel in range(3))
        for row in range(SIDE))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make(file, folder, images):
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rb") as records:
        for number in range(images + images // 4):
            record = records.read(RECORD)
            if len(record) < RECORD:
                sys.exit(f"{file}: has {number} images, {images + images // 4} are needed")
            part = "train" if number < images else "val"
            path = folder / part / CLASSES[record[0]] / f"{number:05}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(record[1:]))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    make(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) == 4 else 200)
