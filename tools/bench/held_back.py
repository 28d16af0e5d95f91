#!/usr/bin/env python3
"""Four ranks under a policy with hosted stripes, the last of them held to a part of a core (control groups, version 1).

By turns: the four ranks, and three ranks beside a busy loop with the fourth's quota on its processor. Nobody should wait
for the slow one, so the other three should be as fast in both. Their steps/s are counted from what each says of itself
(SIGUSR1). The slow rank owns no stripe (placement.stripes). One JSON line a run and one with the medians. Needs root.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from unequal import Quota, free_port

RANKS = 4


def steps_of(programs, outputs):
    """How many steps each has committed."""
    before = [len(path.read_text()) for path in outputs]
    for program in programs:
        program.send_signal(signal.SIGUSR1)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        said = [re.findall(r": (\d+) of \d+ steps", path.read_text()[at:]) for path, at in zip(outputs, before)]
        if all(said):
            return [int(one[-1]) for one in said]
        time.sleep(0.02)
    sys.exit("a rank did not say how far it is: " + " ".join(str(path) for path in outputs))


def measure(options, ranks, quota, folder):
    """Steps/s of the first three ranks together."""
    secret = folder / "secret"
    secret.write_text("of a measurement")
    secret.chmod(0o600)
    common = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    common["TROUPE_SECRET_FILE"] = str(secret)
    shares = [1] * (RANKS - 1) + [0] * (ranks - RANKS + 1)
    command = [options.rtrun, options.file, "--quiet", "--set", f"report.dir={folder / 'run'}"]
    for setting in ("checkpoint.every_steps=0", "evaluate.every_epochs=0", "train.epochs=1000", f"placement.stripes={shares}"):
        command += ["--set", setting]
    for setting in options.set:
        command += ["--set", setting]
    programs, outputs = [], []  # by rank
    for rank in range(ranks):
        outputs.append(folder / f"rank-{rank}.out")
        programs.append(
            subprocess.Popen(
                command,
                env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)),
                stdout=outputs[-1].open("w"),
                stderr=subprocess.STDOUT,
                preexec_fn=quota.join if rank == RANKS - 1 else None,
            )
        )
    others = []
    if ranks < RANKS:
        cpu = str((RANKS - 1) % os.cpu_count())  # where the plan puts the fourth rank
        loop = ["taskset", "-c", cpu, sys.executable, "-c", "while True: pass"]
        others.append(subprocess.Popen(loop, preexec_fn=quota.join))
    try:
        time.sleep(options.warm)
        first, begun = steps_of(programs[: RANKS - 1], outputs[: RANKS - 1]), time.monotonic()
        time.sleep(options.seconds)
        last, ended = steps_of(programs[: RANKS - 1], outputs[: RANKS - 1]), time.monotonic()
    finally:
        for program in programs + others:
            program.kill()
            program.wait()
    return (sum(last) - sum(first)) / (ended - begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rtrun", help="the program, as build/release/bin/rtrun")
    parser.add_argument("file", help="of a policy with hosted stripes, as apps/mnist/async.toml")
    parser.add_argument("--cores", type=float, default=0.15, help="what the last rank has of a core")
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--warm", type=float, default=8, help="seconds before")
    parser.add_argument("--rounds", type=int, default=7, help="turns")
    parser.add_argument("--set", action="append", default=[], help="a further setting, as in rtrun")
    options = parser.parse_args()
    found = {"beside a slow rank": [], "beside a busy loop": []}
    with Quota(options.cores) as quota, tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds):
            cases = list(zip(found, (RANKS, RANKS - 1)))
            for name, ranks in cases if turn % 2 == 0 else reversed(cases):
                found[name].append(measure(options, ranks, quota, pathlib.Path(folder)))
                line = {"bench": "held_back", "case": name, "unit": "steps/s", "v": round(found[name][-1], 2)}
                print(json.dumps(line), flush=True)
    medians = {name: round(statistics.median(rates), 2) for name, rates in found.items()}
    ratio = statistics.median(found["beside a slow rank"]) / statistics.median(found["beside a busy loop"])
    print(json.dumps({"bench": "held_back", "file": options.file, "medians": medians, "ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
