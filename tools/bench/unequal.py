#!/usr/bin/env python3
"""Trains on unequal ranks: one of them is in a control group (version 1) that gets only a part of a core.

Runs equal and measured split in turn, each with `--np` processes of `rtbench train`, the last of which is held back, and
prints one JSON line for each run and one with the medians. With --alone it also measures each kind of rank alone; the sum
of their rates is the most that a job of both can reach. Needs root.
"""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crew"))
from ranks import Quota, parser_of, ranks, tell, with_settings


def train(options, count, quota, split, slow):
    """Samples/s of the last windows, when the shares do not change any more."""
    command = [options.rtbench, "train", "--np", str(count), "--dtype", options.dtype]
    command += ["--batch", str(options.batch), "--seconds", str(options.seconds)]
    settings = [f'placement.split="{split}"', *options.set]
    if count == 1:
        settings.append("placement.cores=1")  # one thread, as each rank has when there are several
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with ranks(with_settings(command, settings), count, folder, joins={slow: quota.join}) as programs:
            codes = [program.wait(timeout=options.seconds * 10 + 120) for program in programs]
        said = [(folder / f"rank-{rank}.out").read_text() for rank in range(count)]
    for code, text in zip(codes, said):
        if code != 0:
            sys.exit(f"rtbench ended with {code}: {text}")
    result = next(line for line in reversed(said[0].splitlines()) if line.startswith("{"))
    return statistics.mean(json.loads(result)["v"][-2:])


def main():
    parser = parser_of(__doc__, "rtbench", rounds=3)
    parser.add_argument("--np", type=int, default=4, help="ranks")
    parser.add_argument("--cores", type=float, default=0.15, help="the fraction of a core that the last rank gets")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--batch", type=int, default=100, help="samples per rank and step, on average")
    parser.add_argument("--seconds", type=float, default=20, help="of each run")
    parser.add_argument("--alone", action="store_true", help="also measure one rank of each kind alone")
    options = parser.parse_args()
    # What is run: the number of ranks, the split, and which of them is held back.
    cases = {split: (options.np, split, options.np - 1) for split in ("equal", "measured")}
    if options.alone:
        cases |= {"full alone": (1, "equal", None), "slow alone": (1, "equal", 0)}
    found = {name: [] for name in cases}
    with Quota(options.cores) as quota:
        for _ in range(options.rounds):
            for name, (count, split, slow) in cases.items():
                found[name].append(train(options, count, quota, split, slow))
                tell(bench="unequal", case=name, unit="samples/s", v=round(found[name][-1], 1))
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    result = {"medians": {name: round(rate, 1) for name, rate in medians.items()}}
    result["measured_to_equal"] = round(medians["measured"] / medians["equal"], 3)
    if options.alone:
        together = (options.np - 1) * medians["full alone"] + medians["slow alone"]
        result["measured_to_sum_alone"] = round(medians["measured"] / together, 3)
    tell(bench="unequal", np=options.np, cores_of_the_last=options.cores, **result)


if __name__ == "__main__":
    main()
