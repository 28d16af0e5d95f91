#!/usr/bin/env python3
"""apps/imagenet/resnet50.toml trains as it is written, on a small folder of images, on two ranks with LARS.

Usage: imagenet_app_test.py RTRUN SOURCE_FOLDER. The images are noise in the format of CIFAR-10.
"""
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RTRUN, SOURCE = sys.argv[1], Path(sys.argv[2])


def run(*arguments):
    found = subprocess.run([RTRUN, *arguments], capture_output=True, text=True, timeout=240)
    if found.returncode != 0:
        sys.exit(f"{' '.join(arguments)} ended with {found.returncode}:\n{found.stdout}\n{found.stderr}")
    return found.stdout + found.stderr


def main():
    app = str(SOURCE / "apps/imagenet/resnet50.toml")
    with tempfile.TemporaryDirectory() as scratch:
        draw = random.Random(7)
        batch = Path(scratch) / "batch.bin"
        batch.write_bytes(b"".join(bytes([n % 10]) + draw.randbytes(3072) for n in range(50)))
        maker = [sys.executable, str(SOURCE / "tests/tools/cifar_folder.py")]
        subprocess.run([*maker, str(batch), f"{scratch}/images", "40"], check=True, timeout=60)
        given = [f"data.path={scratch}/images", f"report.dir={scratch}/run", "cluster.nodes=local:2", "data.batch=2"]
        sets = [f"--set={one}" for one in given]
        checked = run("check", app, *sets)
        wanted = {"optimizer.rule": '"lars"', "model.label_smoothing": "0.1", "optimizer.rate.scale": '"linear"',
                  "optimizer.rate.warmup_epochs": "5"}
        for key, value in wanted.items():
            if not re.search(rf"^{re.escape(key)}\s+= {re.escape(value)}\s", checked, re.MULTILINE):
                sys.exit(f"rtrun check does not show {key} = {value}:\n{checked}")
        run(app, *sets, "--set=train.steps=2", "--set=evaluate.every_epochs=0", "--set=checkpoint.every_steps=0")
        if not (Path(scratch) / "run/log").exists():
            sys.exit("the run left no log")


main()
