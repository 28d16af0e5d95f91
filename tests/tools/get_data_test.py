#!/usr/bin/env python3
"""tools/get-data against a server on loopback that is good, damaged, cut, slow or gone."""
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

TOOL = sys.argv.pop(1)
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("get_data", TOOL)
get_data = importlib.util.module_from_spec(importlib.util.spec_from_loader("get_data", loader))
loader.exec_module(get_data)

CONTENT = {"a.gz": bytes(range(256)) * 1000, "b.gz": b"short"}
FILES = {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items()}


class Server:
    """Serves CONTENT; `answer(name)` may give other bytes, an error's number, or None to say nothing."""

    def __init__(self, answer=None, ranges=True, announced=None):
        self.asked = []  # (name, Range)
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                name = self.path.rsplit("/", 1)[-1]
                server.asked.append((name, self.headers.get("Range")))
                body = answer(name) if answer else CONTENT[name]
                if body is None:
                    server.silence.wait(20)
                    return
                if isinstance(body, int):
                    self.send_error(body)
                    return
                first = 0
                if ranges and "Range" in self.headers:
                    first = int(self.headers["Range"].split("=")[1].rstrip("-"))
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str((announced or len)(body) - first))
                self.end_headers()
                self.wfile.write(body[first:])

        self.silence = threading.Event()
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/mnist/"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.silence.set()
        self.http.shutdown()
        self.http.server_close()


class GetData(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name) / "data" / "mnist"
        self.addCleanup(get_data.SETS.update, get_data.SETS.copy())
        get_data.SETS["mnist"] = (FILES, [])

    def run_tool(self, *mirrors, more=(), folder=None):
        said = io.StringIO()
        arguments = ["mnist", *([str(self.folder)] if folder is None else folder), *more]
        for mirror in mirrors:
            arguments += ["--mirror", mirror]
        with contextlib.redirect_stderr(said):
            try:
                code = get_data.main(arguments)
            except SystemExit as end:
                code = end.code
        return code, said.getvalue()

    def assert_all_there(self):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(CONTENT))
        for name, content in CONTENT.items():
            self.assertEqual((self.folder / name).read_bytes(), content)

    def test_gets_every_file_and_tells_where_it_is(self):
        with Server() as server:
            code, said = self.run_tool(server.url)
        self.assertEqual(code, 0, said)
        self.assert_all_there()
        self.assertIn(str(self.folder), said)
        self.assertIn("256000 bytes", said)
        self.assertIn(f"--set data.path={self.folder}", said)

    def test_ends_with_3_when_its_help_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            helped = subprocess.run([sys.executable, TOOL, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((helped.returncode, helped.stderr), (3, "get-data: error: stdout: cannot be written: No space left on device\n"))

    def test_puts_the_files_where_TROUPE_DATA_says_and_rtrun_looks(self):
        environment = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(environment)))
        os.environ["TROUPE_DATA"] = str(self.folder.parent)
        with Server() as server:
            code, said = self.run_tool(server.url, folder=[])
        self.assertEqual(code, 0, said)
        self.assert_all_there()
        self.assertNotIn("--set", said)

    def test_unpacks_the_files_of_an_archive(self):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name in ("one.bin", "two.bin", "readme.html"):
                member = tarfile.TarInfo(f"inner/{name}")
                member.size = 1000
                tar.addfile(member, io.BytesIO(name.encode() * 200))
        archive = packed.getvalue()
        get_data.SETS["mnist"] = ({"set.tar.gz": (len(archive), hashlib.sha256(archive).hexdigest())}, [])
        get_data.ARCHIVES["set.tar.gz"] = ("inner", {"one.bin": 1000, "two.bin": 1000})
        self.addCleanup(get_data.ARCHIVES.pop, "set.tar.gz")
        with Server(lambda name: archive) as server:
            code, said = self.run_tool(server.url)
        self.assertEqual(code, 0, said)
        self.assertEqual(sorted(os.listdir(self.folder)), ["one.bin", "set.tar.gz", "two.bin"])
        self.assertEqual((self.folder / "two.bin").read_bytes(), (b"two.bin" * 200)[:1000])
        get_data.ARCHIVES["set.tar.gz"] = ("inner", {"one.bin": 999})
        with Server(lambda name: archive) as server:
            code, said = self.run_tool(server.url)
        self.assertEqual(code, 3, said)
        self.assertIn("inner/one.bin has 1000 bytes, 999 were expected", said)

    def test_does_not_unpack_what_another_get_data_unpacks(self):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            member = tarfile.TarInfo("inner/one.bin")
            member.size = 1000
            tar.addfile(member, io.BytesIO(bytes(1000)))
        archive = packed.getvalue()
        get_data.SETS["mnist"] = ({"set.tar.gz": (len(archive), hashlib.sha256(archive).hexdigest())}, [])
        get_data.ARCHIVES["set.tar.gz"] = ("inner", {"one.bin": 1000})
        self.addCleanup(get_data.ARCHIVES.pop, "set.tar.gz")
        self.folder.mkdir(parents=True)
        with (self.folder / "one.bin.part").open("wb") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            part.write(b"half")
            part.flush()
            with Server(lambda name: archive) as server:
                code, said = self.run_tool(server.url)
        self.assertEqual(code, 3, said)
        self.assertIn("one.bin.part: another get-data is writing it", said)
        self.assertEqual((self.folder / "one.bin.part").read_bytes(), b"half")

    def test_leaves_a_file_alone_that_another_get_data_completes_while_it_opens_it(self):
        lock = fcntl.flock

        def lock_late(part, how):
            if not (self.folder / "a.gz").exists():
                (self.folder / "a.gz.part").write_bytes(CONTENT["a.gz"])
                os.replace(self.folder / "a.gz.part", self.folder / "a.gz")
            return lock(part, how)

        with Server() as server, unittest.mock.patch.object(get_data.fcntl, "flock", side_effect=lock_late):
            code, said = self.run_tool(server.url)
        self.assertEqual(code, 0, said)
        self.assert_all_there()

    def test_fetches_nothing_that_is_there_and_whole(self):
        with Server() as server:
            self.run_tool(server.url)
            server.asked.clear()
            code, said = self.run_tool(server.url)
            self.assertEqual((code, server.asked), (0, []))
        self.assertIn("there already", said)

    def test_replaces_a_file_that_is_there_and_damaged(self):
        self.folder.mkdir(parents=True)
        (self.folder / "b.gz").write_bytes(b"shorT")
        with Server() as server:
            self.assertEqual(self.run_tool(server.url)[0], 0)
        self.assert_all_there()

    def test_refuses_damaged_bytes_and_leaves_no_file(self):
        with Server(lambda name: CONTENT[name][:-1] + b"\0") as server:
            code, said = self.run_tool(server.url)
        self.assertEqual(code, 3)
        self.assertIn("SHA-256", said)
        self.assertIn(server.url, said)
        self.assertFalse((self.folder / "a.gz").exists())
        self.assertEqual((self.folder / "a.gz.part").stat().st_size, 0)

    def test_asks_the_next_mirror_when_one_is_damaged_or_lacks_the_file(self):
        with Server(lambda name: b"x" * len(CONTENT[name])) as damaged, Server(lambda name: 404) as lacking, Server() as good:
            code, said = self.run_tool(damaged.url, lacking.url, good.url)
        self.assertEqual(code, 0, said)
        self.assert_all_there()
        self.assertIn("404", said)

    def test_names_every_mirror_that_answers_404(self):
        with Server(lambda name: 404) as one, Server(lambda name: 404) as two:
            code, said = self.run_tool(one.url, two.url, more=["--quiet"])
        self.assertEqual(code, 3)
        for url in (one.url, two.url):
            self.assertIn(f"{url}a.gz: answers 404", said)

    def test_goes_on_where_a_cut_download_stopped(self):
        with Server(lambda name: CONTENT[name][:100000] if name == "a.gz" else CONTENT[name], announced=lambda body: 256000) as cutting:
            code, said = self.run_tool(cutting.url)
        self.assertEqual(code, 3)
        self.assertIn("100000 of 256000 bytes", said)
        with Server() as server:
            code, said = self.run_tool(server.url)
            self.assertIn(("a.gz", "bytes=100000-"), server.asked)
        self.assertEqual(code, 0, said)
        self.assert_all_there()

    def test_starts_again_when_the_server_knows_no_ranges(self):
        self.folder.mkdir(parents=True)
        (self.folder / "a.gz.part").write_bytes(CONTENT["a.gz"][:1000])
        with Server(ranges=False) as server:
            self.assertEqual(self.run_tool(server.url)[0], 0)
        self.assert_all_there()

    def test_starts_again_when_what_was_there_before_does_not_fit(self):
        self.folder.mkdir(parents=True)
        (self.folder / "a.gz.part").write_bytes(b"rubbish" * 100)
        with Server() as server:
            code, said = self.run_tool(server.url)
        self.assertEqual(code, 0, said)
        self.assert_all_there()

    def test_stops_reading_what_is_longer_than_expected(self):
        with Server(lambda name: CONTENT[name] * 3) as server:
            code, said = self.run_tool(server.url)
        self.assertEqual(code, 3)
        self.assertIn("longer than the 256000 bytes", said)

    def test_is_offline_with_exit_code_3_and_a_cure(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        code, said = self.run_tool(url, more=["--quiet"])
        self.assertEqual(code, 3)
        self.assertIn("refused", said)
        self.assertIn("--mirror", said)

    def test_does_not_wait_for_a_server_that_says_nothing(self):
        with Server(lambda name: None) as server:
            code, said = self.run_tool(server.url, more=["--timeout", "0.2"])
        self.assertEqual(code, 3)
        self.assertIn("says nothing for too long", said)

    def test_says_that_the_folder_cannot_be_written(self):
        self.folder.parent.mkdir(parents=True)
        self.folder.write_text("a file where the folder should be")
        code, said = self.run_tool()
        self.assertEqual(code, 3)
        self.assertIn(str(self.folder), said)

    def test_refuses_what_is_no_url_before_it_asks_anybody(self):
        code, said = self.run_tool("ftp:/nowhere")
        self.assertEqual(code, 2)
        self.assertIn("http", said)


class Mnist(unittest.TestCase):
    """The published checksums, against the files themselves where TROUPE_DATA has them."""

    def test_knows_the_files(self):
        folder = Path(os.environ.get("TROUPE_DATA", "/nonexistent")) / "mnist"
        known = [name for name in get_data.MNIST if (folder / name).is_file()]
        if not known:
            self.skipTest("TROUPE_DATA has no mnist/*.gz")
        sizes = {name: (folder / name).stat().st_size for name in known}
        same = [name for name in known if sizes[name] == get_data.MNIST[name][0]]  # a file may have been packed anew
        self.assertTrue(same)
        for name in same:
            self.assertTrue(get_data.whole(folder / name, *get_data.MNIST[name]), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
