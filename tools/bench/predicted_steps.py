#!/usr/bin/env python3
"""How well `rtrun plan` predicts a step: measures the host (rttopo bench), trains jobs in turn and compares.

The jobs are the MNIST example and dense layers of 8 x 1024, f32, sync and block momentum, on one rank, on two ranks of
this host, and on two network namespaces, each with a limited egress. One JSON line for each turn, and at the end one for
each job with the medians. Two namespaces need root. --where takes one place alone.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crew"))
from ranks import Nodes, parser_of, ranks, tell, with_settings

MODELS = {"mnist": [], "8x1024": ["model.units=[" + ",".join(["1024"] * 8) + "]"]}
POLICIES = {
    "sync": ["update.policy=sync"],
    "block_momentum": ["update.policy=block_momentum", "update.block_samples=2000"],
}
PLACES = ["local:1", "local:2", "namespaces"]
PORT = 29478
MOST_SECONDS = 600


def run_all(command, folder, nodes):
    """Runs the command as two ranks, one in each namespace."""
    folder.mkdir(parents=True, exist_ok=True)
    started = ranks(
        command, 2, folder, address=nodes.addresses[0], port=PORT, local=lambda rank: 0, inside=lambda rank: nodes.enter(rank)
    )
    with started as programs:
        codes = [program.wait(timeout=MOST_SECONDS) for program in programs]
    if any(codes):
        sys.exit(f"{' '.join(command)}: ranks ended with {codes}; see {folder}/rank-*.out")


def run_here(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def compared(options, settings, folder, figures):
    """Predicted and measured milliseconds of each part and of the whole step."""
    plan = [str(options.programs / "rtrun"), "plan", options.file, "--compare", str(folder / "report.json"), "--figures", figures, "--json"]
    said = json.loads(run_here(with_settings(plan, settings)))
    return {part: [round(said["predicted"]["ms"][part], 3), round(ms, 3)] for part, ms in said["measured"]["ms"].items()}


def places_of(text):
    """The places of --where. Another one would be a run on something else than its name says."""
    places = text.split(",")
    for place in places:
        if place not in PLACES:
            raise argparse.ArgumentTypeError(f"{place} is none of {', '.join(PLACES)}")
    return places


def main():
    parser = parser_of(__doc__, "programs", rounds=3)
    parser.add_argument("--file", default="apps/mnist/app.toml")
    parser.add_argument("--where", type=places_of, default=",".join(PLACES), help="one or several, with commas between them; default: %(default)s")
    parser.add_argument("--jobs", default="mnist,8x1024")
    parser.add_argument("--policies", default="sync,block_momentum")
    parser.add_argument("--mbit", type=int, default=1000, help="each namespace's egress, in Mbit/s")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("run/predicted-steps"))
    options = parser.parse_args()
    options.programs = pathlib.Path(options.programs)
    options.out.mkdir(parents=True, exist_ok=True)
    places = options.where
    ratios = {}

    def turn(number, where, nodes, figures):
        for job in options.jobs.split(","):
            for policy in options.policies.split(","):
                folder = options.out / f"{where.replace(':', '-')}-{job}-{policy}-{number}"
                settings = [*MODELS[job], *POLICIES[policy], f"train.steps={options.steps}", "evaluate.every_epochs=0"]
                settings += ["checkpoint.every_steps=0", f"report.dir={folder}", *options.set]
                if where.startswith("local"):
                    settings.append(f"cluster.nodes={where}")
                command = with_settings([str(options.programs / "rtrun"), options.file, "--quiet"], settings)
                run_here(command) if nodes is None else run_all(command, folder, nodes)
                rows = compared(options, settings, folder, figures)
                ratio = rows["all"][0] / rows["all"][1]
                ratios.setdefault((where, job, policy), []).append(ratio)
                tell(where=where, job=job, policy=policy, turn=number, ratio=round(ratio, 3), ms=rows)

    with Nodes(2 if "namespaces" in places else 0, options.mbit) as nodes:
        figures = str(options.out / "figures.json")
        bench = [str(options.programs / "rttopo"), "bench", "--out", figures]
        run_all(bench, options.out / "bench", nodes) if "namespaces" in places else run_here(bench)
        for number in range(options.rounds):
            for where in places:
                turn(number, where, nodes if where == "namespaces" else None, figures)
    for (where, job, policy), each in ratios.items():
        tell(where=where, job=job, policy=policy, median_ratio=round(statistics.median(each), 3), turns=len(each))


if __name__ == "__main__":
    main()
