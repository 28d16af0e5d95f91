"""Starts ranks for measurements and tests: as a launcher would, limited to a part of a core, or in separate networks.

Needs root: control groups (version 1) and network namespaces.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time

PERIOD_US = 10_000


def parser_of(description, program, rounds):
    """The options that all measurements have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(program, help=f"the program, as build/release/bin/{program}")
    parser.add_argument("--rounds", type=int, default=rounds, help="number of turns")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE: a further setting, as in rtrun")
    return parser


def tell(**what):
    """One JSON line."""
    print(json.dumps(what), flush=True)


def with_settings(command, settings):
    """The command, with --set KEY=VALUE added for each setting."""
    return command + [word for setting in settings for word in ("--set", setting)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def ranks(command, count, folder, *, address=None, port=None, local=lambda rank: rank, inside=lambda rank: [], joins=None):
    """The processes of `count` ranks, by rank; their output is in FOLDER/rank-N.out. They are killed at the end.

    inside(rank): the words before its command, such as `ip netns exec NAME`; joins[rank]: called in its process before that.
    """
    secret = folder / "secret"
    secret.write_text("of a measurement")
    secret.chmod(0o600)
    common = dict(os.environ, WORLD_SIZE=str(count), TROUPE_SECRET_FILE=str(secret))
    common.update(MASTER_ADDR=address or "127.0.0.1", MASTER_PORT=str(port or free_port()))
    with contextlib.ExitStack() as stack:
        programs = []
        stack.callback(lambda: [(program.kill(), program.wait()) for program in programs])
        for rank in range(count):
            environment = dict(common, RANK=str(rank), LOCAL_RANK=str(local(rank))) if count > 1 else dict(os.environ)
            output = stack.enter_context(open(folder / f"rank-{rank}.out", "w"))
            programs.append(
                subprocess.Popen(
                    inside(rank) + command, env=environment, stdout=output, stderr=output, preexec_fn=(joins or {}).get(rank)
                )
            )
        yield programs


@contextlib.contextmanager
def beside(command, join):
    """Runs a program beside the measurement; join(): called in its process before."""
    program = subprocess.Popen(command, preexec_fn=join)
    try:
        yield program
    finally:
        program.kill()
        program.wait()


class Quota:
    """A control group that gets this fraction of a core."""

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
        """Moves the calling process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


def run(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise OSError(f"{' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


class Nodes:
    """Network namespaces on one bridge, each with an egress of `mbit` Mbit/s; None: not limited."""

    def __init__(self, count, mbit=None):
        self.tag = f"sn{os.getpid() % 1000000}"
        self.names = [f"{self.tag}n{node}" for node in range(count)]
        self.addresses = [f"10.78.{os.getpid() % 250}.{node + 1}" for node in range(count)]
        self.mbit = mbit

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        run("ip", "link", "add", self.tag, "type", "bridge")
        run("ip", "link", "set", self.tag, "up")
        for name, address in zip(self.names, self.addresses):
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"{name}v", "master", self.tag, "up")
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                run("ip", "-n", name, "link", "set", device, "up")
            if self.mbit:
                shape = f"root tbf rate {self.mbit}mbit burst {max(32, self.mbit)}kb latency 400ms"
                run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape.split())
        for name in self.names:  # a device notices a little later that its other end is up
            until = time.monotonic() + 10
            while "state UP" not in run("ip", "-n", name, "-o", "link", "show", "dev", "eth0"):
                if time.monotonic() > until:
                    raise OSError(f"the link of {name} does not come up")
                time.sleep(0.01)

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "link", "del", f"{name}v"], capture_output=True, timeout=20)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)
        subprocess.run(["ip", "link", "del", self.tag], capture_output=True, timeout=20)

    def enter(self, node):
        return ["ip", "netns", "exec", self.names[node]]

    def sent_bytes(self, node):
        told = json.loads(run("ip", "-n", self.names[node], "-s", "-j", "link", "show", "dev", "eth0"))
        return told[0]["stats64"]["tx"]["bytes"]

    def link_bytes(self, node):
        """The bytes that the node's link sent: the same with a header for each segment, as the token bucket counts."""
        told = json.loads(run("tc", "-n", self.names[node], "-s", "-j", "qdisc", "show", "dev", "eth0"))
        return told[0]["bytes"]
