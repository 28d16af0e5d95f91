#!/usr/bin/env python3
"""apps/text/gpt.toml, made small, generates a text after each evaluation: on one rank and on two, in f32 and bf16, with the
weights and with their average. A run that is asked to stop does not wait for a long text.

Usage: generated_text_test.py RTRUN SOURCE_FOLDER.
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RTRUN, SOURCE = sys.argv[1], Path(sys.argv[2])
WORDS = ["actors ", "send ", "tensors ", "through ", "lanes ", "and ", "never ", "wait.\n"]
SMALL = ["model.depth=1", "model.width=32", "model.heads=2", "data.length=32", "data.batch=16", "optimizer.rate.base=0.005",
         "train.deterministic=true", "checkpoint.every_steps=0", "evaluate.text_bytes=90", 'evaluate.text_prompt="lanes "',
         "evaluate.text_top_k=0", "train.epochs=3"]


def expect(condition, what):
    if not condition:
        sys.exit(what)


def rtrun(command, *sets):
    return subprocess.run([RTRUN, *command, SOURCE / "apps/text/gpt.toml", *[f"--set={one}" for one in sets]],
                          capture_output=True, timeout=240)


class Run:
    """A run of all epochs, and what it left."""

    def __init__(self, scratch, *more):
        folder = Path(tempfile.mkdtemp(dir=scratch))
        found = rtrun([], f'data.path="{scratch}/words.txt"', f'report.dir="{folder}"', *SMALL, *more)
        self.printed = found.stdout.decode()
        expect(found.returncode == 0, f"{more} ended with {found.returncode}:\n{self.printed}\n{found.stderr.decode()}")
        self.texts = [line["generated_text"] for line in json.loads((folder / "log").read_text())]
        self.summary = json.loads((folder / "report.json").read_text())
        self.page = (folder / "report.html").read_text()


def check_whole_run(run):
    expect(len(run.texts) == 3, f"3 evaluations have {len(run.texts)} texts")
    for text in run.texts:
        expect(text.startswith("lanes ") and len(text.encode()) >= 96, f"not the prompt and 90 bytes: {text!r}")
        block = "".join(f"    | {line}\n" for line in text.split("\n")).removesuffix("    | \n")
        expect(block in run.printed, f"{block}\nis not printed:\n{run.printed}")
    expect(run.summary["generated_text"] == run.texts[-1], f"report.json has {run.summary['generated_text']!r}")
    expect(run.texts[-1] in run.page and run.texts[0] not in run.page, "the page has the newest text alone")


def learned(text):
    """The share of the text that is words of the language."""
    left = text
    for word in WORDS:
        left = left.replace(word, "")
    return 1 - len(left) / len(text)


def check_stop(scratch):
    """SIGTERM comes while the text after the last evaluation is generated, which takes longer than a rank may take to stop."""
    folder = Path(scratch) / "stopped"
    sets = [f'data.path="{scratch}/words.txt"', f'report.dir="{folder}"', *SMALL, "cluster.nodes=local:2", "model.depth=8",
            "model.width=256", "data.batch=2", "train.steps=2", "checkpoint.every_steps=1", "evaluate.text_bytes=65536",
            "faults.exchange_s=300", "faults.stop_s=20"]
    run = subprocess.Popen([RTRUN, SOURCE / "apps/text/gpt.toml", *[f"--set={one}" for one in sets]], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoints/*-step-2/manifest.json")):
        if run.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"there is no checkpoint of step 2; exit code {run.poll()}:\n{run.communicate()[0].decode()}")
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGTERM)
    said = run.communicate(timeout=120)[0].decode()
    expect(run.returncode in (0, 75), f"a run that is asked to stop ended with {run.returncode}:\n{said}")
    text = json.loads((folder / "log").read_text())[-1]["generated_text"]
    expect(text.startswith("lanes ") and len(text.encode()) < 65536, f"a text of {len(text)} letters, not the part that was made")


def check_other_length(scratch):
    """A checkpoint of samples of another length names the setting."""
    sets = [f'data.path="{scratch}/words.txt"', f'report.dir="{scratch}/length"', *SMALL, "cluster.nodes=local:1",
            "train.steps=2", "checkpoint.every_steps=2"]
    expect(rtrun([], *sets).returncode == 0, "no checkpoint was made")
    found = rtrun(["--resume", "auto"], *sets, "train.steps=4", "data.length=16")
    said = found.stderr.decode()
    expect(found.returncode == 2 and "trained with other data: samples of [32] where this job has [16]" in said and
           "set data.length back" in said, f"ended with {found.returncode}:\n{said}")


def check_refusals(scratch):
    path = f'data.path="{scratch}/words.txt"'
    layers = ('model.layers=[{kind="embedding",vocabulary=256,width=8},{kind="dense",units=24,flatten=false},'
              '{kind="attention",name="look",heads=2},{kind="dense",units=256,flatten=false}]')
    plain = ["model.name=mlp", "model.depth=6", "model.width=384", "model.heads=6"]
    for wanted, command, sets in [
            ("evaluate.text_bytes = 200: model layers cannot generate text: layer look", ["plan"], [path, layers, *plain]),
            ("evaluate.text_bytes", ["check"], ["data.source=generated"]),
            ("evaluate.text_bytes", ["check"], ["evaluate.every_epochs=0"]),
            ("evaluate.text_prompt", ["check"], ['evaluate.text_prompt=""']),
            ("evaluate.text_top_k", ["check"], ["evaluate.text_bytes=0"])]:
        found = rtrun(command, *sets)
        said = (found.stdout + found.stderr).decode()
        expect(found.returncode != 0 and wanted in said, f"{sets} ended with {found.returncode}, without {wanted}:\n{said}")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        draw = random.Random(7)
        (Path(scratch) / "words.txt").write_text("".join(draw.choices(WORDS, k=6000)))
        one = Run(scratch, "cluster.nodes=local:1")
        check_whole_run(one)
        expect(learned(one.texts[-1]) > 0.6 > learned("The quick brown fox"), f"nothing was learned: {one.texts[-1]!r}")
        expect(Run(scratch, "cluster.nodes=local:1").texts == one.texts, "the same run has other texts")
        two = Run(scratch, "cluster.nodes=local:2", "model.dtype=bf16")
        check_whole_run(two)
        averaged = Run(scratch, "cluster.nodes=local:2", "model.dtype=bf16", "optimizer.ema_decay=0.99")
        check_whole_run(averaged)
        expect(averaged.texts[0] != two.texts[0], "the text is not of the averaged weights")
        check_stop(scratch)
        check_other_length(scratch)
        check_refusals(scratch)


main()
