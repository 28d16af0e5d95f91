#!/usr/bin/env python3
"""Trains one app.toml after the other on ranks whose network is slow, and says how far each came.

Every node, of one rank or more, is a network namespace whose egress is limited by a token bucket. For each file one
JSON line: steps/s, the bytes that left a node in a step, and the seconds until an accuracy was reached first. The logs stay
under --out, for policy_curves.py. Needs root.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

SUBNET = "10.78.{}.{}"


def run(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


class Nodes:
    """Namespaces on one bridge, each with an egress of `mbit` Mbit/s."""

    def __init__(self, count, mbit):
        self.tag = f"sn{os.getpid() % 1000000}"
        self.third = os.getpid() % 250
        self.count = count
        self.mbit = mbit

    def name(self, node):
        return f"{self.tag}n{node}"

    def address(self, node):
        return SUBNET.format(self.third, node + 1)

    def __enter__(self):
        run("ip", "link", "add", self.tag, "type", "bridge")
        run("ip", "link", "set", self.tag, "up")
        for node in range(self.count):
            name, port = self.name(node), f"{self.tag}v{node}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", port, "master", self.tag, "up")
            run("ip", "-n", name, "addr", "add", self.address(node) + "/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                run("ip", "-n", name, "link", "set", device, "up")
            shape = ["root", "tbf", "rate", f"{self.mbit}mbit", "burst", f"{max(32, self.mbit)}kb", "latency", "400ms"]
            run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)
        return self

    def __exit__(self, *_):
        for node in range(self.count):
            subprocess.run(["ip", "link", "del", f"{self.tag}v{node}"], capture_output=True)
            subprocess.run(["ip", "netns", "del", self.name(node)], capture_output=True)
        subprocess.run(["ip", "link", "del", self.tag], capture_output=True)

    def sent_bytes(self, node):
        told = json.loads(run("ip", "-n", self.name(node), "-s", "-j", "link", "show", "dev", "eth0"))
        return told[0]["stats64"]["tx"]["bytes"]


def train(options, nodes, file, folder):
    """Runs the ranks; the wall-clock time, of start and end too."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "secret"
    secret.write_text("of a measurement")
    secret.chmod(0o600)
    command = [options.rtrun, str(file), "--quiet", "--set", f"report.dir={folder}", "--set", "checkpoint.every_steps=0"]
    for setting in options.set:
        command += ["--set", setting]
    with contextlib.ExitStack() as stack:
        programs = []
        for rank in range(options.ranks):
            node, local = divmod(rank, options.ranks_per_node)
            environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=str(options.ranks))
            environment.update(MASTER_ADDR=nodes.address(0), MASTER_PORT="29477", TROUPE_SECRET_FILE=str(secret))
            output = stack.enter_context(open(folder / f"rank-{rank}.out", "w"))
            inside = ["ip", "netns", "exec", nodes.name(node)]
            programs.append(subprocess.Popen(inside + command, env=environment, stdout=output, stderr=output))
        begun = time.monotonic()
        try:
            codes = [program.wait(timeout=options.most_seconds) for program in programs]
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            for program in programs:
                program.send_signal(signal.SIGINT)
            codes = [program.wait(timeout=60) for program in programs]
        finally:
            for program in programs:
                program.kill()
    if any(code not in (0, 130) for code in codes):
        sys.exit(f"{file}: ranks ended with {codes}; see {folder}/rank-*.out")
    return time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rtrun", help="the program")
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="app.toml files, by turns")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--mbit", type=int, default=100, help="each node's egress, in Mbit/s")
    parser.add_argument("--accuracy", type=float, default=0.97, help="whose first time is told")
    parser.add_argument("--most-seconds", type=float, default=3600, help="a run that takes longer is stopped")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE, for every file")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("run/slow-network"))
    options = parser.parse_args()
    with Nodes(-(-options.ranks // options.ranks_per_node), options.mbit) as nodes:
        for turn in range(options.rounds):
            for file in options.files:
                folder = options.out / f"{options.mbit}-{turn}" / file.stem
                before = nodes.sent_bytes(1)
                wall = train(options, nodes, file, folder)
                lines = json.loads((folder / "log").read_text())
                sent = nodes.sent_bytes(1) - before
                told = {"file": file.stem, "mbit": options.mbit, "turn": turn, "wall_s": round(wall, 2)}
                told["elapsed_s"] = round(lines[-1]["elapsed_time"], 2)
                told["steps"] = lines[-1]["iteration"]
                told["steps_per_s"] = round(lines[-1]["iteration"] / lines[-1]["elapsed_time"], 3)
                told["sent_bytes_per_step"] = round(sent / lines[-1]["iteration"])
                reached = [e["elapsed_time"] for e in lines if e.get("validation/main/accuracy", 0) >= options.accuracy]
                told["seconds_to_accuracy"] = round(reached[0], 2) if reached else None
                told["best_accuracy"] = max(e.get("validation/main/accuracy", 0) for e in lines)
                (folder / "summary.json").write_text(json.dumps(told))
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
