#!/usr/bin/env python3
"""Trains on unequal ranks: one of them in a control group (version 1) that gets a part of a core.

Runs equal and measured split by turns, each `--np` processes of `rtbench train` of which the last is held back, and
prints one JSON line a run and one with the medians. With --alone also what the two kinds of rank do by themselves: the
rates that a job of both can reach together. Needs root.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

PERIOD_US = 10_000


class Quota:
    """A control group with so much of a core."""

    def __init__(self, cores):
        self.folder = pathlib.Path(f"/sys/fs/cgroup/cpu/troupe-unequal-{os.getpid()}")
        self.cores = cores

    def __enter__(self):
        self.folder.mkdir()
        (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self.folder / "cpu.cfs_quota_us").write_text(str(round(self.cores * PERIOD_US)))
        return self

    def __exit__(self, *_):
        self.folder.rmdir()

    def join(self):
        """Puts the calling process in."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(options, ranks, quota, split, slow):
    """Samples/s of the last windows, when the shares have settled."""
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder) / "secret"
        secret.write_text("of a measurement")
        secret.chmod(0o600)
        common = dict(
            os.environ,
            WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
            TROUPE_SECRET_FILE=str(secret),
        )
        command = [options.rtbench, "train", "--np", str(ranks), "--dtype", options.dtype]
        command += ["--batch", str(options.batch), "--seconds", str(options.seconds)]
        command += ["--set", f'placement.split="{split}"']
        if ranks == 1:
            command += ["--set", "placement.cores=1"]  # one thread, as each of several ranks has
        programs = []
        for rank in range(ranks):
            environment = dict(common, RANK=str(rank), LOCAL_RANK=str(rank)) if ranks > 1 else dict(os.environ)
            programs.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    preexec_fn=quota.join if slow == rank else None,
                )
            )
        said = [program.communicate(timeout=options.seconds * 10 + 120) for program in programs]
    for program, (_, err) in zip(programs, said):
        if program.returncode != 0:
            sys.exit(f"rtbench ended with {program.returncode}: {err}")
    windows = json.loads(said[0][0].splitlines()[-1])["v"]
    return statistics.mean(windows[-2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rtbench", help="the program, as build/release/bin/rtbench")
    parser.add_argument("--np", type=int, default=4, help="ranks")
    parser.add_argument("--cores", type=float, default=0.15, help="what the last rank has of a core")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--batch", type=int, default=100, help="samples a rank and step, on average")
    parser.add_argument("--seconds", type=float, default=20, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="turns")
    parser.add_argument("--alone", action="store_true", help="also one rank of each kind by itself")
    options = parser.parse_args()
    found = {}

    def measure(name, *arguments):
        rate = train(options, *arguments)
        found.setdefault(name, []).append(rate)
        print(json.dumps({"bench": "unequal", "case": name, "unit": "samples/s", "v": round(rate, 1)}), flush=True)

    with Quota(options.cores) as quota:
        for _ in range(options.rounds):
            for split in ("equal", "measured"):
                measure(split, options.np, quota, split, options.np - 1)
            if options.alone:
                measure("full alone", 1, quota, "equal", None)
                measure("slow alone", 1, quota, "equal", 0)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    result = {"bench": "unequal", "np": options.np, "cores_of_the_last": options.cores}
    result["medians"] = {name: round(rate, 1) for name, rate in medians.items()}
    result["measured_to_equal"] = round(medians["measured"] / medians["equal"], 3)
    if options.alone:
        together = (options.np - 1) * medians["full alone"] + medians["slow alone"]
        result["measured_to_sum_alone"] = round(medians["measured"] / together, 3)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
