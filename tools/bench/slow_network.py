#!/usr/bin/env python3
"""Trains several app.toml files, one after the other, on ranks with a slow network, and prints the progress of each.

Every node, with one rank or more, is a network namespace with an egress that a token bucket limits. For each file one
JSON line: steps/s, the bytes that a node sent in a step, the fraction of the time in which its link sent them and their
headers, and the seconds until an accuracy was reached for the first time. The logs stay under --out, for policy_curves.py. Needs root.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crew"))
from ranks import Nodes, parser_of, ranks, tell, with_settings

ACCURACY = "validation/main/accuracy"


def train(options, nodes, file, folder):
    """Runs the ranks; returns the wall-clock time, including start and end."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = [f"report.dir={folder}", "checkpoint.every_steps=0", *options.set]
    each = options.ranks_per_node
    started = ranks(
        with_settings([options.rtrun, str(file), "--quiet"], settings),
        options.ranks,
        folder,
        address=nodes.addresses[0],
        port=29477,
        local=lambda rank: rank % each,
        inside=lambda rank: nodes.enter(rank // each),
    )
    with started as programs:
        begun = time.monotonic()
        try:
            codes = [program.wait(timeout=options.most_seconds) for program in programs]
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            for program in programs:
                program.send_signal(signal.SIGINT)
            codes = [program.wait(timeout=60) for program in programs]
    if any(code not in (0, 130) for code in codes):
        sys.exit(f"{file}: ranks ended with {codes}; see {folder}/rank-*.out")
    return time.monotonic() - begun


def main():
    parser = parser_of(__doc__, "rtrun", rounds=1)
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="app.toml files, which run in turn")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--mbit", type=int, default=100, help="each node's egress, in Mbit/s")
    parser.add_argument("--accuracy", type=float, default=0.97, help="the accuracy whose time is printed")
    parser.add_argument("--most-seconds", type=float, default=3600, help="a run that takes longer is stopped")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("run/slow-network"))
    options = parser.parse_args()
    turns = [(turn, file) for turn in range(options.rounds) for file in options.files]
    with Nodes(-(-options.ranks // options.ranks_per_node), options.mbit) as nodes:
        for turn, file in turns:
            folder = options.out / f"{options.mbit}-{turn}" / file.stem
            before = nodes.sent_bytes(1), nodes.link_bytes(1)
            wall = train(options, nodes, file, folder)
            lines = json.loads((folder / "log").read_text())
            sent = nodes.sent_bytes(1) - before[0]
            carried = nodes.link_bytes(1) - before[1]
            elapsed, steps = lines[-1]["elapsed_time"], lines[-1]["iteration"]
            reached = [e["elapsed_time"] for e in lines if e.get(ACCURACY, 0) >= options.accuracy]
            told = {
                "file": file.stem,
                "mbit": options.mbit,
                "turn": turn,
                "wall_s": round(wall, 2),
                "elapsed_s": round(elapsed, 2),
                "steps": steps,
                "steps_per_s": round(steps / elapsed, 3),
                "sent_bytes_per_step": round(sent / steps),
                "link_busy": round(carried * 8e-6 / options.mbit / elapsed, 3),
                "seconds_to_accuracy": round(reached[0], 2) if reached else None,
                "best_accuracy": max(e.get(ACCURACY, 0) for e in lines),
            }
            (folder / "summary.json").write_text(json.dumps(told))
            tell(**told)


if __name__ == "__main__":
    main()
