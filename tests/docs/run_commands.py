#!/usr/bin/env python3
"""run_commands.py SOURCE BIN PAGE: runs every command of one Markdown page, and looks at the rest of what it shows.

Fenced blocks marked `sh` or `bash` run in order, each by `bash -euo pipefail`, in a copy of the sources in a temporary folder,
with the programs of BIN in PATH (and at bin/ and build/release/bin/). Blocks marked `toml` must pass `rtrun check`. Links within
the repository must lead somewhere, README.md must link to every page of docs/, source files that are named must exist and contain the
entries that a table has beside them, and commands inside of sentences must have options that --help knows. A block without a language
that looks like commands is an error: nobody would run it.

A comment in the line before a block, which readers do not see, says what differs:
    <!-- not run: REASON -->                      minutes, root, several hosts; the reason is printed
    <!-- run with: rtrun --set train.steps=9 -->  these arguments are added to every call of that program
    <!-- run instead: COMMAND -->                 the same in short
    <!-- needs: mpirun -->                        not run where there is no such program
    <!-- within: 120 s -->                        instead of 60 s
    <!-- exits: 2 -->                             instead of 0
    <!-- as in: FILE -->                          the lines, of whatever language, follow each other in this source file too; indents
                                                  and empty lines do not count
Several may stand above each other.
"""
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

OURS = ("rtrun", "rtrun-rank", "rttopo", "ckpt", "rtbench")
SHELLS = ("sh", "bash")
PROGRAMS = ("rtrun", "rttopo", "rtbench", "ckpt", "cmake", "cpack", "ctest", "ninja", "mpirun", "srun", "apt-get", "apt", "git", "./quickstart",
            "./check", "tools/get-data", "build/", "bin/", "RANK=", "export ", "ip netns", "python3", "kill ", "ssh ")
DIRECTIVE = re.compile(r"^<!-- (not run|run instead|needs|run with|within|exits|as in): (.+?) -->$")


@dataclass
class Block:
    line: int
    language: str
    text: str
    directives: dict = field(default_factory=dict)


class Wrong(Exception):
    pass


def blocks_of(text):
    """Fenced blocks with the directives right above them; an unknown or stray directive is an error."""
    blocks, above, inside = [], {}, None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"^ {0,3}```\s*([\w+-]*)\s*$", line)
        if inside:
            if fence and not fence.group(1):
                blocks.append(inside)
                inside = None
            else:
                inside.text += line + "\n"
        elif fence:
            inside, above = Block(number, fence.group(1), "", above), {}
        elif match := DIRECTIVE.match(line.strip()):
            above.setdefault(match.group(1), []).append(match.group(2))
        elif above and line.strip():
            raise Wrong(f"line {number}: a directive that no block follows")
    if inside:
        raise Wrong(f"line {inside.line}: a block without an end")
    return blocks


def looks_like_commands(block):
    return any(line.startswith(PROGRAMS) for line in block.text.splitlines())


@contextlib.contextmanager
def additions(block, tools):
    """Within it the programs in `tools`, which are links, add what the block says to their arguments."""
    real = {}
    try:
        for addition in block.directives.get("run with", []):
            name, *arguments = shlex.split(addition)
            if not (tools / name).is_symlink() or not re.search(rf"(^|[\s/(]){re.escape(name)}\b", block.text):
                raise Wrong(f"line {block.line}: is told to run {name} with more arguments, but does not run it")
            real[name] = (tools / name).readlink()
            (tools / name).unlink()
            added = " ".join(shlex.quote(a) for a in arguments)
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(real[name]))} "$@" {added}\n')
            (tools / name).chmod(0o755)
        yield
    finally:
        for name, program in real.items():
            (tools / name).unlink()
            (tools / name).symlink_to(program)


def run(block, folder, environment):
    """Runs a block in a process group of its own, so that nothing that it started is left behind."""
    limit_s = float(block.directives.get("within", ["60 s"])[0].removesuffix(" s"))
    wanted = int(block.directives.get("exits", ["0"])[0])
    commands = "\n".join(block.directives.get("run instead", [block.text]))
    script = "set -euo pipefail\n" + commands
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        shell = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = shell.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        shell.wait()
        output.seek(0)
        said = output.read().decode(errors="replace")
    took = time.monotonic() - began
    if code != wanted:
        how = f"did not end within {limit_s:g} s" if code is None else f"ended with {code} instead of {wanted}"
        raise Wrong(f"line {block.line}: {how}:\n{commands}--- output:\n{said[-4000:]}")
    print(f"  line {block.line}: {took:.1f} s: {block.text.strip().splitlines()[0]}")


def check_toml(block, folder, environment):
    path = Path(folder) / "block.toml"
    path.write_text(block.text)
    done = subprocess.run(["rtrun", "check", str(path)], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Wrong(f"line {block.line}: rtrun check refuses it:\n{done.stderr}")
    print(f"  line {block.line}: rtrun takes these settings")


def check_code(block, source):
    """That the block's lines are a part of the source files that it names."""

    def lines_of(text):
        return "".join(line.strip() + "\n" for line in text.splitlines() if line.strip())

    for name in block.directives["as in"]:
        if not (source / name).is_file():
            raise Wrong(f"line {block.line}: {name} is not there")
        if "\n" + lines_of(block.text) not in "\n" + lines_of((source / name).read_text()):
            raise Wrong(f"line {block.line}: is not as in {name}")
        print(f"  line {block.line}: as in {name}")


def anchors_of(text):
    """As GitHub makes them of headings."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.M)}


def check_links(page, text, source):
    wrong = []
    plain = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", plain):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page.resolve()
        if not to.exists() or not to.is_relative_to(source.resolve()):
            wrong.append(f"links to {target}, which is not there")
        elif anchor and anchor not in anchors_of(to.read_text()):
            wrong.append(f"links to {target}, where no such heading is")
    if page.name == "README.md":
        wrong += [f"has no link to docs/{other.name}" for other in sorted((source / "docs").glob("*.md")) if f"(docs/{other.name})" not in text]
    if wrong:
        raise Wrong("\n".join(wrong))


def check_source_files(text, source):
    """Files and folders (with a / at the end) of the sources in code spans must exist. In tables that begin with the columns File and
    Entry, each entry must occur in a file of its row."""
    path = re.compile(r"(?:runtime|actors|devices|transports|apps|tools|tests|docs|cmake)/[\w./-]*(?:\.\w+|/)")
    plain = re.sub(r"```.*?```", "", text, flags=re.S)
    spans = sorted(set(re.findall(r"`([^`\n]+)`", plain)))
    wrong = [f"names {span}, which is not there" for span in spans if path.fullmatch(span) and not (source / span).exists()]
    in_table = False
    for row in plain.splitlines():
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        in_table = cells[:2] == ["File", "Entry"] or (in_table and bool(cells))
        if not in_table:
            continue
        files = [source / span for span in re.findall(r"`([^`]+)`", cells[0]) if (source / span).is_file()]
        contents = "".join(file.read_text() for file in files)
        wrong += [f"says that {cells[0]} has `{entry}`, which it has not" for entry in re.findall(r"`([^`]+)`", cells[1]) if entry not in contents]
    if wrong:
        raise Wrong("\n".join(wrong))


def check_inline_commands(text, environment):
    """Commands inside of sentences and tables, which do not run: their verbs and options must be ones that --help knows."""

    def help_of(*command):
        return subprocess.run([*command, "--help"], env=environment, capture_output=True, text=True, timeout=60).stdout

    wrong = []
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        program, *words = span.split()
        program = program.rsplit("/", 1)[-1]
        if program not in OURS or not words or not shutil.which(program, path=environment["PATH"]):
            continue
        known = help_of(program)
        if re.fullmatch("[a-z]+", words[0]):
            if not re.search(rf"^  {words[0]}\b", known, re.M):
                wrong.append(f"`{span}`: {program} --help knows no {words[0]}")
                continue
            known += help_of(program, words[0])
        for word in words:
            option = word.split("=")[0]
            if re.fullmatch("--[a-z-]+", option) and not re.search(rf"{option}\b", known):
                wrong.append(f"`{span}`: {program} --help knows no {option}")
    if wrong:
        raise Wrong("\n".join(wrong))


def copy_sources(source, to):
    """What belongs to the repository, without what was built or downloaded in it."""
    skip = {".git", "build", "run", ".cache"}
    to.mkdir()
    for entry in source.iterdir():
        if entry.name not in skip:
            subprocess.run(["cp", "-a", str(entry), str(to)], check=True)


def main():
    source, bin_folder, page = Path(sys.argv[1]), Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    text = page.read_text()
    print(f"{page}:")
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "troupe"
        copy_sources(source, folder)
        tools = folder / "build/release/bin"
        tools.mkdir(parents=True)
        (folder / "bin").symlink_to(tools)
        environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", HOME=scratch, NO_COLOR="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        environment.setdefault("XDG_CACHE_HOME", str(bin_folder.parent / "docs-cache"))
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TROUPE_SECRET_FILE", "TROUPE_DATA"):
            environment.pop(name, None)
        for program in bin_folder.iterdir():
            (tools / program.name).symlink_to(program)
        try:
            check_links(page, text, source)
            check_source_files(text, source)
            check_inline_commands(text, environment)
            blocks = blocks_of(text)
        except Wrong as error:
            failed.append(str(error))
            blocks = []
        for block in blocks:
            try:
                if "as in" in block.directives:
                    check_code(block, source)
                if "not run" in block.directives:
                    print(f"  line {block.line}: not run: {block.directives['not run'][0]}")
                elif missing := [name for name in block.directives.get("needs", []) if not shutil.which(name)]:
                    print(f"  line {block.line}: not run: no {missing[0]} here")
                elif block.language in SHELLS:
                    with additions(block, tools):
                        run(block, folder, environment)
                elif block.language == "toml":
                    check_toml(block, folder, environment)
                elif not block.language and looks_like_commands(block):
                    raise Wrong(f"line {block.line}: commands in a block without a language; write ```sh:\n{block.text}")
            except Wrong as error:
                failed.append(str(error))
    for what in failed:
        print(f"{page}: {what}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
