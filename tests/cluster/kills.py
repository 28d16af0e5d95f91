#!/usr/bin/env python3
"""Kills, stops and signals jobs at random moments, and looks at how each of them ends.

Each run is a small job of its own, made from a seed: a policy, two or four ranks of one host or two ranks in network
namespaces, perhaps a switch of policies or a rebuild by `rtrun control`, and something that happens between the start
of its first process and its end: SIGKILL, SIGSTOP (for good, or until a SIGCONT), SIGTERM or SIGINT, to a rank, to
two ranks at once or to rtrun. Checked are: that the job ends by itself in time, with which exit code, whom it names,
that nothing is left of it (processes, System V segments, /dev/shm, files), that `--resume auto` then ends well, and
that where the policy promises it the last checkpoint's tensors have the bits of a job that was not disturbed.

Prints a line a run and a table; ends with 1 when a run did not end as it should. `--seed S --runs 1` makes run S again.
With --gpus the ranks compute on the GPUs of the stand-in for the CUDA driver, whose seed differs from run to run: 1 to 5
ranks with a GPU each, or 4 on two nodes, over NCCL or own collectives. Then nothing may be reported by the stand-in.
As root it works in namespaces of its own, so that what other programs leave in shared memory is not taken for the job's.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "crew"))
from ranks import Nodes

MARK = "TROUPE_KILLS_RUN"
OWN_NAMESPACES = "TROUPE_KILLS_OWN_NAMESPACES"
LIMIT = 3.0  # seconds from the last thing that happened to the end of the job
START, DEAD, EXCHANGE, STOP = 10.0, 3.0, 6.0, 5.0  # seconds: faults.start_s, dead_ms, exchange_s and stop_s of the jobs
WHOLE_RUN = 120.0  # seconds that a job which goes on may take on a busy machine

# name: (settings of [update], the rule, whether a job that goes on has the bits of one that was not disturbed:
# "always", "unless asked to stop" (the block under way then ends early), "same saves", "never")
POLICIES = {
    "sync": ("", "adam", "always"),
    "double_buffered": ("", "adam", "same saves"),
    "local_sgd": ("every_steps = 4", "sgd", "unless asked to stop"),
    "post_local_sgd": ("every_steps = 4\ndistributed_after = 4000", "sgd", "unless asked to stop"),
    "model_averaging": ("block_samples = 240", "sgd", "unless asked to stop"),
    "block_momentum": ("block_samples = 240", "sgd", "unless asked to stop"),
    "diloco": ("every_steps = 5", "sgd", "unless asked to stop"),
    "ssp-0": ("staleness = 0", "adam", "always"),
    "ssp": ("staleness = 3", "adam", "never"),
    "async": ("", "sgd", "never"),
    "easgd": ("every_steps = 4", "sgd", "never"),
}
# Never reached: a job is prepared for these, and so for requests of other policies. The second one needs own collectives.
LATER = ['{ at_step = 1000000000, policy = "local_sgd", every_steps = 4 }', '{ at_step = 1000000001, policy = "ssp", staleness = 2 }']

RANKS = {f"local:{ranks}": ranks for ranks in range(1, 6)} | {"namespaces": 2, "namespaces:4": 4}  # of each layout
WITHOUT_GPUS = ["local:2", "local:4", "namespaces"]
HOSTED = ["ssp-0", "ssp", "async", "easgd"]  # their exchange is not over NCCL
# What happens, and how often compared to the others.
KINDS = {
    "kill a rank": 6,
    "kill two ranks": 2,
    "kill rtrun": 2,
    "stop a rank": 2,
    "pause a rank": 2,
    "pause rtrun": 1,
    "SIGTERM to rtrun": 3,
    "SIGINT to rtrun": 2,
    "SIGTERM to rtrun, then kill a rank": 2,
    "SIGTERM to a rank": 2,
    "SIGINT to a rank": 1,
    "control stop": 1,
}
SWITCHES = [
    ["sync"],
    ["local_sgd", "every_steps=4"],
    ["double_buffered"],
    ["async"],
    ["ssp", "staleness=2"],
    ["model_averaging", "block_samples=240"],
    ["block_momentum", "block_samples=240"],
    ["easgd", "every_steps=4"],
]

JOB = """[cluster]
{cluster}
[data]
path = "{data}"
batch = 20
[model]
units = [32, 32]
[optimizer]
rule = "{rule}"
rate = 0.005
[train]
epochs = 100000
steps = {steps}
deterministic = true
[update]
policy = "{policy}"
{settings}
switch = [{switches}]
[placement]
cores = 0
device = "{device}"
[evaluate]
every_epochs = 4
[checkpoint]
dir = "checkpoints"
every_steps = {every}
keep = 100
[report]
dir = "run"
[faults]
dead_ms = {dead_ms}
start_s = {start}
exchange_s = {exchange}
stop_s = {stop}
"""


def write_images(folder):
    """IDX files of 2,000 and 200 images, whose labels can be learnt: the label's rows are bright, the rest is noise."""
    dice, side = random.Random(1), 28
    for name, count in (("train", 2000), ("t10k", 200)):
        images, labels = bytearray(), bytearray()
        for i in range(count):
            image = bytearray(byte & 63 for byte in dice.randbytes(side * side))
            row = side * (2 * (i % 10) + 4)
            image[row : row + side] = bytes([230]) * side
            images += image
            labels.append(i % 10)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, side, side) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + labels)


# ---- what can be seen of processes ----


def stat_of(pid):
    """State and starting time of a process, nothing when there is none."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return fields[0], fields[19]


def lives(pid):
    found = stat_of(pid)
    return found is not None and found[0] not in "ZX"


def environment_of(pid):
    try:
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").split("=", 1) for entry in entries if b"=" in entry)


def marked(mark):
    """Live processes of a run."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in pids if lives(pid) and environment_of(pid).get(MARK) == mark]


def ranks_of(mark, pids):
    """Process ids by rank. `pids`: rtrun's, or those of ranks that were started one by one."""
    found = {}
    for pid in pids:
        try:
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
        for each in [pid, *map(int, children)]:
            place = environment_of(each)
            if place.get(MARK) == mark and "RANK" in place and lives(each):
                found[int(place["RANK"])] = each
    return found


def shared_memory():
    """Names in /dev/shm, and System V segments with the process that made them."""
    names = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    for line in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        fields = line.split()
        names.add(f"System V segment {fields[1]} made by process {fields[4]}")
    return names


def becomes_true(condition, seconds):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


# ---- checkpoints ----


def checkpoints(folder):
    """Whole checkpoints by their steps."""
    found = {}
    for path in (folder / "checkpoints").glob("*-step-*/manifest.json"):
        found[int(path.parent.name.rsplit("-", 1)[1])] = path.parent
    return found


def tensors(checkpoint):
    """A digest of each piece of state in a checkpoint."""
    found = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        content = path.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        for name, entry in json.loads(content[8 : 8 + size]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                found[name] = hashlib.sha256(content[8 + size + first : 8 + size + last]).hexdigest()
    return found


# ---- a job ----


class Job:
    """One job in a folder of its own."""

    def __init__(self, options, folder, mark, layout, policy, collectives, namespaces, stand_in_seed=1):
        self.options, self.folder, self.mark, self.layout, self.policy = options, folder, mark, layout, policy
        self.namespaces, self.stand_in_seed = namespaces, stand_in_seed
        self.processes, self.started = [], None
        (folder / "tmp").mkdir(parents=True)
        settings, rule, self.promise = POLICIES[policy]
        name = policy.split("-")[0]
        cluster = [f'nodes = "{layout}"'] if layout.startswith("local") else []
        if collectives:
            cluster.append(f'collectives = "{collectives}"')
        (folder / "app.toml").write_text(
            JOB.format(
                cluster="\n".join(cluster),
                switches=", ".join(LATER[:1] if "nccl" in collectives else LATER),
                device="cuda" if options.gpus else "cpu",
                data=options.data,
                rule=rule,
                policy=name,
                settings=settings,
                steps=options.steps,
                every=options.every,
                dead_ms=round(DEAD * 1000),
                start=START,
                exchange=EXCHANGE,
                stop=STOP,
            )
        )

    def environment(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TROUPE_", "MASTER_")) and k not in ("RANK", "WORLD_SIZE")}
        temporary = str(self.folder / "tmp")
        if self.options.gpus:
            kept["LD_LIBRARY_PATH"] = self.options.gpus
            for name, value in (("DEVICES", RANKS[self.layout]), ("SEED", self.stand_in_seed), ("CLOSED", 1)):
                kept[f"TROUPE_CUDA_HOST_{name}"] = str(value)
        return dict(kept, TMPDIR=temporary, XDG_CACHE_HOME=temporary, **{MARK: self.mark})

    def start(self, turn, *arguments):
        """Starts rtrun, or one for each rank in its namespace; what they write goes to files named after `turn`."""
        command = [self.options.rtrun, *arguments, "app.toml"]
        self.outputs, self.processes = [], []
        self.started = time.monotonic()
        if self.namespaces is None:
            self.begin(turn, command, self.environment())
            return
        secret = self.folder / "secret"
        secret.write_text("of a measurement")
        secret.chmod(0o600)
        port = random.Random(self.mark + turn).randint(20000, 30000)
        ranks = RANKS[self.layout]
        for rank in range(ranks):
            name = self.namespaces.names[rank * 2 // ranks]
            place = dict(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank % (ranks // 2)), MASTER_PORT=str(port))
            place.update(MASTER_ADDR=self.namespaces.addresses[0], TROUPE_SECRET_FILE=str(secret))
            self.begin(f"{turn}-rank-{rank}", ["ip", "netns", "exec", name, *command], dict(self.environment(), **place))

    def begin(self, name, command, environment):
        self.outputs.append(self.folder.parent / f"{self.folder.name}-{name}.out")
        with self.outputs[-1].open("w") as out:
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        self.processes.append(process)

    def ranks(self):
        return ranks_of(self.mark, [process.pid for process in self.processes])

    def wait(self, seconds):
        """Exit codes as a shell gives them, and when the last one ended; nothing when one runs on."""
        until = time.monotonic() + seconds
        codes = []
        for process in self.processes:
            try:
                code = process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            codes.append(128 - code if code < 0 else code)
        return codes

    def said(self):
        return "".join(path.read_text(errors="replace") for path in self.outputs)

    def end(self):
        for pid in marked(self.mark):
            os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Run:
    """What happens to one job, and what is found."""

    def __init__(self, options, seed, folder, references, namespaces):
        self.dice = random.Random(seed)
        dice = self.dice
        self.seed, self.options = seed, options
        layouts = [each for each in (RANKS if options.gpus else WITHOUT_GPUS) if not each.startswith("namespaces") or namespaces is not None]
        self.layout = options.layout or dice.choice(layouts)
        self.has_nodes = self.layout.startswith("namespaces")
        self.ranks = RANKS[self.layout]
        self.policy = options.policy or dice.choice(list(POLICIES))
        kinds = dict(KINDS)
        if self.ranks == 1:  # rtrun is the rank
            kinds = {kind: often for kind, often in kinds.items() if not re.search("(a|two) ranks?$", kind)}
        if self.has_nodes:  # each rank is an rtrun of its own there
            for kind in ("kill rtrun", "pause rtrun", "kill two ranks", "SIGINT to rtrun", "SIGTERM to rtrun, then kill a rank"):
                del kinds[kind]
        self.kind = options.what or dice.choices(list(kinds), list(kinds.values()))[0]
        self.victims = dice.sample(range(self.ranks), 2 if self.kind == "kill two ranks" else 1)
        self.limit, self.collectives, stand_in_seed = LIMIT, "", 1
        if options.gpus:
            self.limit = 2 * LIMIT  # its GPUs are threads of the host
            stand_in_seed = dice.randint(1, 50)
            means = ["own"] if self.policy in HOSTED or self.ranks == 1 else ["own", "nccl"]
            if self.layout == "namespaces:4" and len(means) > 1:
                means.append("nccl_in_nodes")
            self.collectives = options.collectives or dice.choice(means)
        self.reference = references(self.layout, self.policy, self.collectives)
        # A moment between the start and the end, or one in training, which other load does not shift.
        self.at = dice.uniform(0, 1.05) * self.reference["seconds"]
        last_epoch = options.steps * 20 * self.ranks // 2000
        self.epoch = dice.randint(1, last_epoch) if dice.random() < 0.6 else None
        self.after_epoch = dice.uniform(0, 0.02)
        self.pause = dice.uniform(0.05, 0.5 * DEAD)
        self.switch = dice.choice(SWITCHES) if dice.random() < 0.3 else None
        self.switch_epoch = dice.randint(1, self.epoch or last_epoch)
        rebuild = ["rebuild"] if dice.random() < 0.3 else None
        self.request = ["switch", *self.switch] if self.switch else rebuild
        place = namespaces if self.has_nodes else None
        self.job = Job(options, folder, f"{folder}", self.layout, self.policy, self.collectives, place, stand_in_seed)
        self.faults, self.notes = [], []
        self.seconds = 0.0
        self.codes = []

    def fault(self, what):
        self.faults.append(what)

    def wait_for_epoch(self, epoch):
        """Until rank 0 has said that it is over, or a process of the job has ended."""
        row = re.compile(rf"^{epoch} ", re.MULTILINE)

        def over():
            said = self.job.outputs[0].read_text(errors="replace")
            return row.search(said) or any(process.poll() is not None for process in self.job.processes)

        becomes_true(over, WHOLE_RUN)

    def control(self, request, epoch):
        """Asks the run for something in a thread, after an epoch."""

        def ask():
            self.wait_for_epoch(epoch)
            command = [self.options.rtrun, "control", "run", *request]
            if self.job.namespaces is not None:
                command = ["ip", "netns", "exec", self.job.namespaces.names[0], *command]
            while True:
                try:
                    done = subprocess.run(
                        command, cwd=self.job.folder, env=self.job.environment(), capture_output=True, text=True, timeout=30
                    )
                except subprocess.TimeoutExpired:
                    self.fault(f"`rtrun control {' '.join(request)}` did not end")
                    return
                # 3: the run listens to nobody yet, or any more.
                if done.returncode != 3 or any(process.poll() is not None for process in self.job.processes):
                    break
                time.sleep(0.01)
            if request[0] == "switch":
                self.asked = done.returncode
            self.notes.append(f"control {' '.join(request)}: {done.returncode}")
            if done.returncode not in (0, 1, 3):
                self.fault(f"`rtrun control {' '.join(request)}` ended with {done.returncode}: {done.stderr.strip()}")

        thread = threading.Thread(target=ask)
        thread.start()
        return thread

    def target(self):
        """Process ids of the victims; nothing for what has ended already."""
        rtrun = self.job.processes[0].pid
        if "rtrun" in self.kind and not self.has_nodes:
            return [rtrun]
        if self.kind == "SIGTERM to rtrun":  # a scheduler tells all of them
            victims = range(self.ranks)
        else:
            victims = self.victims
        found = {}

        def there():
            found.update(self.job.ranks())
            return all(rank in found for rank in victims) or any(p.poll() is not None for p in self.job.processes)

        becomes_true(there, 10)
        return [found[rank] for rank in victims if rank in found]

    def disturb(self):
        """Does what happens; how many seconds the job may take from then on."""
        if self.epoch is None:
            time.sleep(max(0.0, self.job.started + self.at - time.monotonic()))
        else:
            self.wait_for_epoch(self.epoch)
            time.sleep(self.after_epoch)
            self.at = time.monotonic() - self.job.started
        if self.kind == "control stop":
            self.control(["stop"], self.epoch or 1).join()
            return WHOLE_RUN
        pids = [pid for pid in self.target() if lives(pid)]
        self.hit = bool(pids)
        self.met = "communicator" in self.job.outputs[0].read_text(errors="replace")
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "pause": signal.SIGSTOP}.get(self.kind.split()[0])
        if number is None:
            number = getattr(signal, self.kind.split()[0])
        for pid in pids:
            send(pid, number)
        if not pids:
            return self.limit if self.kind != "SIGTERM to a rank" else STOP + self.limit
        if self.kind.startswith("pause"):
            time.sleep(self.pause)
            for pid in pids:
                send(pid, signal.SIGCONT)
            return WHOLE_RUN
        if self.kind.endswith("then kill a rank"):
            ranks = self.job.ranks()
            time.sleep(self.pause / 20)
            if self.victims[0] in ranks:
                send(ranks[self.victims[0]], signal.SIGKILL)
        if self.kind.startswith("stop"):
            # Before the ranks have met its silence is not counted, after its end the others' patience is.
            return max(START, EXCHANGE, 1.5 * DEAD) + self.limit
        return self.patience() + self.limit

    def patience(self):
        """How long a rank in a namespace waits for one that it has not met; nobody tells it of a death there."""
        return START if self.has_nodes and not self.met else 0.0

    def expected(self):
        """Exit codes of rtrun, or of each rank in the namespaces."""
        kind = self.kind
        if kind == "control stop" or kind.startswith("pause"):
            return {0}
        if kind == "kill rtrun":
            return {137}
        if kind.startswith("kill"):
            return {4}
        if kind == "stop a rank":
            return {4}
        if kind.startswith("SIGTERM to rtrun"):
            return {75, 143}
        if kind == "SIGINT to rtrun":
            return {130}
        if kind == "SIGTERM to a rank":
            return {75, 143, 4}  # 4: before it takes signals
        return {130, 4}

    def finished(self):
        return self.options.steps in checkpoints(self.job.folder)

    def judge_codes(self, codes):
        allowed = self.expected()
        self.codes = codes
        for rank, code in enumerate(codes):
            if self.has_nodes:
                if rank in self.victims and self.kind in ("kill a rank", "stop a rank") and code == 137:
                    continue
                if code == 3 and self.patience() and self.victims == [0]:
                    continue  # it could not reach rank 0
                if code == 4 and self.kind == "SIGTERM to rtrun" and 143 in codes:
                    continue  # nobody started both, and the other one ended by the signal before it took part
                if self.kind.endswith("to a rank") and rank not in self.victims and code == 0:
                    continue  # it stopped because the other one asked for it
            if code in allowed:
                continue
            if code == 0 and self.finished():
                self.notes.append("it had ended before")
                continue
            if code == 1 and self.kind == "stop a rank" and self.finished():
                continue  # the others had ended well
            self.fault(f"exit code {code}, not {' or '.join(map(str, sorted(allowed)))}")
        if 75 in codes and not checkpoints(self.job.folder):
            self.fault("exit code 75 without a checkpoint")

    def judge_names(self, codes):
        if not (self.kind.startswith(("kill", "stop")) and self.kind != "kill rtrun") or 4 not in codes:
            return
        if self.has_nodes:
            others = [path for rank, path in enumerate(self.job.outputs) if rank not in self.victims]
            said = "".join(path.read_text(errors="replace") for path in others)
            named = [int(rank) for line in said.splitlines() if "error" in line for rank in re.findall(r"(?:rank|peer) (\d+)", line)]
        else:
            last = [line for line in self.job.said().splitlines() if line.startswith("rtrun: error: ")]
            named = [int(rank) for line in last[-1:] for rank in re.findall(r"rank (\d+)", line)]
        found = named if self.has_nodes else named[:1]  # a rank there names itself first
        if not set(found) & set(self.victims):
            self.fault(f"the victim is rank {self.victims}, named is {found or 'nobody'}")
        elif len(self.victims) == 2 and not set(self.victims) <= set(named):
            self.notes.append("only one of two victims in the last line")

    def judge_remains(self, before):
        def gone():
            return not marked(self.job.mark)

        if not becomes_true(gone, self.limit):
            left = [f"{pid} ({stat_of(pid)[0] if stat_of(pid) else '?'})" for pid in marked(self.job.mark)]
            self.fault("processes left: " + " ".join(left))
        if left := shared_memory() - before:
            self.fault("left in shared memory: " + ", ".join(sorted(left)))
        allowed = {"app.toml", "secret", "tmp", "run", "checkpoints"}
        for path in self.job.folder.rglob("*"):
            name = path.relative_to(self.job.folder)
            whole = re.fullmatch(r"\d+-step-\d+", name.parts[1]) if name.parts[0] == "checkpoints" and len(name.parts) > 1 else True
            known = name.parts[0] in allowed and whole and len(name.parts) <= (1 if name.parts[0] == "tmp" else 3)
            # A checkpoint under way is removed by the next job in the folder.
            if not known and "checkpoints" not in name.parts:
                self.fault(f"file left: {name}")

    def same_bits(self, stopped_early):
        promise = self.job.promise
        switched = self.switch is not None and self.asked != 3  # 3: nobody took the request
        if switched or promise == "never":
            return None
        if promise != "always" and stopped_early:
            return None
        found = checkpoints(self.job.folder)
        if promise == "same saves" and set(found) != self.reference["saves"]:
            return None  # a save was left out since the one before was still being written
        return tensors(found[self.options.steps]) == self.reference["tensors"]

    def go_on(self):
        """Takes the job up again until its end."""
        self.job.start("resume", "--resume", "auto")
        codes = self.job.wait(WHOLE_RUN)
        if codes is None:
            return self.fault("the resumed job did not end")
        if any(codes):
            return self.fault(f"the resumed job ended with {codes}: {self.job.said().strip().splitlines()[-1:]}")
        if not self.finished():
            return self.fault("the resumed job left no checkpoint of its last step")
        asked = self.kind.startswith("SIG") or self.kind == "control stop"
        self.bits = self.same_bits(asked)
        if self.bits is False:
            self.fault("the resumed job's last checkpoint has other bits than that of a job that was not disturbed")

    def go(self):
        before = shared_memory()
        self.asked, self.bits, self.hit, self.met = None, None, True, False
        try:
            self.job.start("first")
            asking = self.control(self.request, self.switch_epoch) if self.request else None
            limit = self.disturb()
            event = time.monotonic()
            if not self.hit:
                limit = WHOLE_RUN
            if self.kind == "stop a rank" and self.has_nodes and self.hit:
                others = [process for rank, process in enumerate(self.job.processes) if rank not in self.victims]
                if becomes_true(lambda: all(other.poll() is not None for other in others), max(limit, 30)):
                    self.seconds = time.monotonic() - event
                    send(self.job.processes[self.victims[0]].pid, signal.SIGKILL)  # nobody there kills what is stopped
            codes = self.job.wait(limit)
            if codes is None:
                self.ask_what_it_does()
                codes = self.job.wait(30)
            if not self.seconds:
                self.seconds = time.monotonic() - event
            if self.kind == "kill rtrun":
                becomes_true(lambda: not marked(self.job.mark), self.limit)
                self.seconds = time.monotonic() - event
            if codes is None:
                self.fault(f"it had not ended after {self.seconds:.1f} s")
            else:
                if self.seconds > limit:
                    self.fault(f"it ended {self.seconds:.1f} s after the event, and should have within {limit:.1f} s")
                self.judge_codes(codes)
                self.judge_names(codes)
            if asking:
                asking.join()
            said = self.job.said()
            if crash := re.search(r"killed by (SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL)|not finite|Assertion|cuda stand-in: .*", said):
                self.fault(f"it says \"{crash.group(0)}\"")
            if codes is not None:
                self.judge_remains(before)
                self.go_on()
        finally:
            self.job.end()

    def ask_what_it_does(self):
        """An overdue job's ranks say what they are doing, in their output."""
        for pid in self.job.ranks().values():
            status = pathlib.Path(f"/proc/{pid}/status").read_text() if lives(pid) else ""
            blocked = re.search(r"SigBlk:\s*(\w+)", status)
            if blocked and int(blocked.group(1), 16) >> (signal.SIGUSR1 - 1) & 1:  # it is read; others would die of it
                send(pid, signal.SIGUSR1)

    def line(self):
        found = {"bench": "kills", "seed": self.seed, "layout": self.layout, "policy": self.policy, "what": self.kind}
        found.update(victims=self.victims, at_s=round(self.at, 3), codes=self.codes, seconds=round(self.seconds, 3))
        if self.collectives:
            found.update(collectives=self.collectives, stand_in_seed=self.job.stand_in_seed)
        found.update(request=self.request, bits=self.bits, notes=self.notes, faults=self.faults)
        return found


class References:
    """Jobs that nobody disturbs: how long they take, and what they end with."""

    def __init__(self, options, folder, namespaces):
        self.options, self.folder, self.namespaces, self.known = options, folder, namespaces, {}

    def __call__(self, *kind):
        if kind in self.known:
            return self.known[kind]
        layout, policy, collectives = kind
        folder = self.folder / f"reference-{layout.replace(':', '-')}-{policy}-{collectives}"
        place = self.namespaces if layout.startswith("namespaces") else None
        job = Job(self.options, folder, str(folder), layout, policy, collectives, place)
        try:
            job.start("first")
            codes = job.wait(WHOLE_RUN)
            seconds = time.monotonic() - job.started
            if codes is None or any(codes):
                sys.exit(f"a job of {policy} on {layout} {collectives} that nobody disturbs ends with {codes}:\n{job.said()}")
            found = checkpoints(folder)
            result = {"seconds": seconds, "saves": set(found), "tensors": tensors(found[self.options.steps])}
        finally:
            job.end()
        shutil.rmtree(folder)
        self.known[kind] = result
        return result


def print_table(lines):
    print(f"{'what happened':<34} {'runs':>5} {'median s':>9} {'longest s':>10} {'same bits':>10} {'faults':>7}  exit codes")
    for kind in [*KINDS, "all"]:
        rows = [line for line in lines if kind in ("all", line["what"])]
        if not rows:
            continue
        seconds = [row["seconds"] for row in rows]
        compared = [row["bits"] for row in rows if row["bits"] is not None]
        codes = {}
        for row in rows:
            key = "+".join(map(str, row["codes"])) or "none"
            codes[key] = codes.get(key, 0) + 1
        told = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
        same = f"{sum(compared)}/{len(compared)}"
        faults = sum(bool(row["faults"]) for row in rows)
        print(f"{kind:<34} {len(rows):>5} {statistics.median(seconds):>9.2f} {max(seconds):>10.2f} {same:>10} {faults:>7}  {told if kind != 'all' else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rtrun", help="the program, as build/release/bin/rtrun")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next number")
    parser.add_argument("--gpus", metavar="FOLDER", help="of the stand-in for the CUDA driver, as build/release/cuda_host")
    parser.add_argument("--collectives", choices=["own", "nccl", "nccl_in_nodes"], help="of all runs on GPUs")
    parser.add_argument("--layout", choices=list(RANKS), help="of all runs, instead of one by the seed")
    parser.add_argument("--policy", choices=list(POLICIES), help="of all runs")
    parser.add_argument("--what", choices=list(KINDS), help="happens to all runs")
    parser.add_argument("--steps", type=int, default=2000, help="of each job")
    parser.add_argument("--every", type=int, default=100, help="steps from a checkpoint to the next")
    parser.add_argument("--json", action="store_true", help="a JSON line a run, and no table")
    parser.add_argument("--keep", help="a folder for what is left of runs that did not end as they should")
    options = parser.parse_args()
    if options.collectives and not options.gpus:
        parser.error("--collectives is for runs on GPUs; give --gpus, too")
    options.rtrun = str(pathlib.Path(options.rtrun).resolve())
    if options.gpus:
        options.gpus = str(pathlib.Path(options.gpus).resolve())
    if os.geteuid() == 0 and OWN_NAMESPACES not in os.environ and shutil.which("unshare"):
        os.environ[OWN_NAMESPACES] = "1"
        enter = ["unshare", "--ipc", "--mount", "--propagation", "private", "sh", "-c"]
        if subprocess.run([*enter, "mount -t tmpfs tmpfs /dev/shm"], capture_output=True).returncode == 0:
            here = [sys.executable, *sys.argv]
            os.execvp(enter[0], [*enter, 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh", *here])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that namespaces and processes go, too
    lines, namespaces = [], None
    with tempfile.TemporaryDirectory(prefix="troupe-kills-") as name:
        folder = pathlib.Path(name)
        options.data = folder / "data"
        options.data.mkdir()
        write_images(options.data)
        try:
            namespaces = Nodes(2).__enter__()
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "stderr", None) or str(error)).strip()
            print(f"no runs in network namespaces: {reason}", file=sys.stderr)
        try:
            references = References(options, folder, namespaces)
            for seed in range(options.seed, options.seed + options.runs):
                run = Run(options, seed, folder / f"run-{seed}", references, namespaces)
                run.go()
                lines.append(run.line())
                if options.json:
                    print(json.dumps(lines[-1]), flush=True)
                else:
                    what = f"{run.layout}, {run.policy}, {run.collectives + ', ' if run.collectives else ''}{run.kind} {run.victims if 'a rank' in run.kind or 'two' in run.kind else ''}"
                    print(f"seed {seed}: {what} at {run.at:.2f} s: {run.codes} after {run.seconds:.2f} s {'; '.join(run.notes)}", flush=True)
                for fault in run.faults:
                    print(f"seed {seed}: {fault}", file=sys.stderr, flush=True)
                if run.faults and options.keep:
                    keep = pathlib.Path(options.keep) / f"run-{seed}"
                    shutil.copytree(run.job.folder, keep, dirs_exist_ok=True)
                    for path in folder.glob(f"run-{seed}-*.out"):
                        shutil.copy(path, keep)
                shutil.rmtree(run.job.folder)
        finally:
            if namespaces is not None:
                namespaces.__exit__()
    if not options.json:
        print_table(lines)
    sys.exit(1 if any(line["faults"] for line in lines) else 0)


if __name__ == "__main__":
    main()
