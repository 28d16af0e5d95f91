#!/usr/bin/env python3
"""tools/make-shards: what it packs is what tar reads, and its index says where."""
import contextlib
import importlib.machinery
import importlib.util
import io
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
from pathlib import Path

TOOL = sys.argv.pop(1)
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("make_shards", TOOL)
make_shards = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_shards", loader))
loader.exec_module(make_shards)


class MakeShards(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder, self.out = Path(scratch.name) / "images", Path(scratch.name) / "shards"

    def write(self, *names):
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(name.encode() * 50)

    def run_tool(self, *arguments):
        said, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            try:
                code = make_shards.main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = end.code
        return code, said.getvalue() + errors.getvalue()

    def entries(self, shard):
        index = Path(f"{shard}.index").read_bytes()
        count, size, _, _ = struct.unpack_from("<QQII", index, 8)
        self.assertEqual((index[:8], size, len(index)), (b"TRSHARD1", shard.stat().st_size, 32 + 16 * count))
        return [struct.unpack_from("<QIi", index, 32 + 16 * i) for i in range(count)]

    def test_packs_every_image_once_with_its_label(self):
        names = [f"train/{name}/{i}.{ending}" for i in range(20) for name, ending in (("bee", "jpg"), ("ape", "PNG"))]
        self.write(*names, "val/bee/x.jpg", "train/ape/notes.txt")
        code, said = self.run_tool(self.folder, self.out, "--size", 0.03)
        self.assertEqual(code, 0, said)
        shards = sorted(self.out.glob("train-*.tar"))
        self.assertGreater(len(shards), 1)
        found = {}
        for shard in shards:
            for offset, size, label in self.entries(shard):
                content = shard.read_bytes()[offset : offset + size]
                found[content] = label
            with tarfile.open(shard) as tar:
                self.assertEqual(len(tar.getnames()), 2 * len(self.entries(shard)))
        self.assertEqual(found, {name.encode() * 50: 0 if "ape" in name else 1 for name in names})
        self.assertEqual(len(self.entries(self.out / "val-000000.tar")), 1)
        self.assertFalse(list(self.out.glob("*.part")))

    def test_makes_the_same_index_of_shards_that_are_there(self):
        self.write("train/ape/1.jpg", "test/ape/2.jpg")
        self.run_tool(self.folder, self.out)
        index = self.out / "train-000000.tar.index"
        before = index.read_bytes()
        index.unlink()
        self.assertEqual(self.run_tool("--index", self.out / "train-000000.tar")[0], 0)
        self.assertEqual(index.read_bytes(), before)

    def test_says_what_is_missing(self):
        code, said = self.run_tool(self.folder, self.out)
        self.assertEqual(code, 2)
        self.assertIn("has no folder train", said)
        self.write("train/ape/1.jpg")
        self.assertIn("neither test nor val", self.run_tool(self.folder, self.out)[1])
        self.write("test/cat/1.jpg")
        self.assertIn("no class of the training set is called cat", self.run_tool(self.folder, self.out)[1])

    def test_refuses_a_folder_with_shards_of_an_earlier_call(self):
        self.write("train/ape/1.jpg", "test/ape/2.jpg")
        self.assertEqual(self.run_tool(self.folder, self.out)[0], 0)
        before = {path: path.read_bytes() for path in self.out.iterdir()}
        code, said = self.run_tool(self.folder, self.out, "--seed", 8)
        self.assertEqual(code, 2, said)
        self.assertIn("test-000000.tar", said)
        self.assertIn("remove", said)
        self.assertEqual({path: path.read_bytes() for path in self.out.iterdir()}, before)

    def test_ends_without_a_traceback_when_it_is_interrupted(self):
        self.write("train/ape/1.jpg", "test/ape/2.jpg")
        with unittest.mock.patch.object(make_shards, "write_index", side_effect=KeyboardInterrupt):
            code, said = self.run_tool(self.folder, self.out)
        self.assertEqual(code, 130)
        self.assertIn("interrupted", said)

    def test_ends_with_3_when_stdout_is_full(self):
        self.write("train/ape/1.jpg", "test/ape/2.jpg")
        with open("/dev/full", "w") as full:
            made = subprocess.run([sys.executable, TOOL, self.folder, self.out], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((made.returncode, made.stderr), (3, "make-shards: error: stdout: No space left on device\n"))

    def test_ends_with_3_when_its_help_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            helped = subprocess.run([sys.executable, TOOL, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((helped.returncode, helped.stderr), (3, "make-shards: error: stdout: No space left on device\n"))

    def test_leaves_a_folder_alone_that_another_one_writes_into(self):
        self.write("train/ape/1.jpg", "test/ape/2.jpg")
        self.assertEqual(self.run_tool(self.folder, self.out)[0], 0)
        shard = self.out / "train-000000.tar"
        second = []
        pack, index = make_shards.pack, make_shards.write_index

        def pack_beside(*arguments):
            second.append(self.run_tool(self.folder, self.out.parent / "two"))
            pack(*arguments)

        def index_beside(path):
            second.append(self.run_tool("--index", shard))
            return index(path)

        with unittest.mock.patch.object(make_shards, "pack", side_effect=pack_beside):
            self.assertEqual(self.run_tool(self.folder, self.out.parent / "two")[0], 0)
        with unittest.mock.patch.object(make_shards, "write_index", side_effect=index_beside):
            self.assertEqual(self.run_tool("--index", shard)[0], 0)
        self.assertEqual(len(second), 3)
        for code, said in second:
            self.assertEqual(code, 2)
            self.assertIn("another make-shards writes into this folder", said)

    def test_refuses_an_image_without_a_label(self):
        shard = Path(self.out)
        shard.mkdir()
        with tarfile.open(shard / "a.tar", "w") as tar:
            make_shards.add(tar, "7.jpg", b"x")
        code, said = self.run_tool("--index", shard / "a.tar")
        self.assertEqual(code, 2)
        self.assertIn("7 has no .cls", said)

    def test_refuses_an_image_with_holes(self):
        self.out.mkdir()
        image = self.out / "7.jpg"
        with image.open("wb") as file:
            file.write(b"x")
            file.truncate(1 << 20)
        (self.out / "7.cls").write_text("0")
        made = subprocess.run(["tar", "--sparse", "-cf", "a.tar", "7.jpg", "7.cls"], cwd=self.out)
        if made.returncode != 0 or (self.out / "a.tar").stat().st_size >= 1 << 20:
            self.skipTest("this tar or file system knows no holes")
        code, said = self.run_tool("--index", self.out / "a.tar")
        self.assertEqual(code, 2, said)
        self.assertIn("7.jpg: stored with holes", said)


if __name__ == "__main__":
    unittest.main()
