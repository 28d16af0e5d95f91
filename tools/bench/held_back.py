#!/usr/bin/env python3
"""Four ranks under a policy with hosted stripes, the last of which gets only a part of a core (control groups, version 1).

Alternately: the four ranks, and three ranks beside a busy loop that has the fourth's quota of its processor. No rank should
wait for the slow one, so the other three should be as fast in both cases. Their steps/s are counted from their answers to
SIGUSR1. The slow rank owns no stripe (placement.stripes). One JSON line for each run and one with the medians. Needs root.
"""

import os
import pathlib
import re
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crew"))
from ranks import Quota, beside, parser_of, ranks, tell, with_settings

RANKS = 4


def steps_of(programs, folder):
    """The number of steps that each rank has committed."""
    outputs = [folder / f"rank-{rank}.out" for rank in range(len(programs))]
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


def measure(options, count, quota, folder):
    """Steps/s of the first three ranks together."""
    shares = [1] * (RANKS - 1) + [0] * (count - RANKS + 1)
    settings = [f"report.dir={folder / 'run'}", "checkpoint.every_steps=0", "evaluate.every_epochs=0"]
    settings += ["train.epochs=1000", f"placement.stripes={shares}", *options.set]
    command = with_settings([options.rtrun, options.file, "--quiet"], settings)
    cpu = str((RANKS - 1) % os.cpu_count())  # where the plan puts the fourth rank
    busy = ["taskset", "-c", cpu, sys.executable, "-c", "while True: pass"] if count < RANKS else ["true"]
    started = ranks(command, count, folder, joins={RANKS - 1: quota.join})
    with started as programs, beside(busy, quota.join):
        time.sleep(options.warm)
        first, begun = steps_of(programs[: RANKS - 1], folder), time.monotonic()
        time.sleep(options.seconds)
        last, ended = steps_of(programs[: RANKS - 1], folder), time.monotonic()
    return (sum(last) - sum(first)) / (ended - begun)


def main():
    parser = parser_of(__doc__, "rtrun", rounds=7)
    parser.add_argument("file", help="an app.toml of a policy with hosted stripes, such as apps/mnist/async.toml")
    parser.add_argument("--cores", type=float, default=0.15, help="the fraction of a core that the last rank gets")
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--warm", type=float, default=8, help="seconds before the measurement")
    options = parser.parse_args()
    found = {"beside a slow rank": [], "beside a busy loop": []}
    with Quota(options.cores) as quota, tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds):
            cases = list(zip(found, (RANKS, RANKS - 1)))
            for name, count in cases if turn % 2 == 0 else reversed(cases):
                found[name].append(measure(options, count, quota, pathlib.Path(folder)))
                tell(bench="held_back", case=name, unit="steps/s", v=round(found[name][-1], 2))
    slow, loop = (statistics.median(rates) for rates in found.values())
    medians = dict(zip(found, (round(slow, 2), round(loop, 2))))
    tell(bench="held_back", file=options.file, medians=medians, ratio=round(slow / loop, 3))


if __name__ == "__main__":
    main()
