#!/usr/bin/env python3
"""run_commands.py must be red where a page is wrong: run_commands_test.py RUN_COMMANDS."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = sys.argv.pop(1)


class RunCommands(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.source, self.bin = Path(scratch.name) / "source", Path(scratch.name) / "bin"
        self.source.mkdir()
        self.bin.mkdir()
        rtrun = self.bin / "rtrun"  # takes a configuration when it says so
        rtrun.write_text('#!/bin/sh\n[ "$1" != check ] || exec grep -q good "$2"\necho "rtrun got $*"\n')
        rtrun.chmod(0o755)

    def run_page(self, text, name="page.md"):
        page = self.source / name
        page.write_text(text)
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.source))
        done = subprocess.run([sys.executable, TOOL, str(self.source), str(self.bin), str(page)], capture_output=True, text=True,
                              timeout=60, env=environment)
        return done.returncode, done.stdout + done.stderr

    def assert_red(self, text, *says, name="page.md"):
        code, said = self.run_page(text, name)
        self.assertEqual(code, 1, said)
        for what in says:
            self.assertIn(what, said)

    def assert_green(self, text, *says, name="page.md"):
        code, said = self.run_page(text, name)
        self.assertEqual(code, 0, said)
        for what in says:
            self.assertIn(what, said)

    def test_a_command_that_fails_is_red_and_named(self):
        self.assert_red("# Page\n\n```sh\necho before\nfalse\n```\n", "line 3: ended with 1 instead of 0", "before")

    def test_commands_that_work_are_green(self):
        self.assert_green("```sh\nrtrun job.toml\n```\n```bash\nbin/rtrun x; build/release/bin/rtrun y\n```\n")

    def test_a_page_goes_on_in_one_folder(self):
        self.assert_green("```sh\necho 1 >there\n```\n```sh\ntest -f there\n```\n")

    def test_a_marked_block_is_not_run_and_its_reason_is_told(self):
        self.assert_green("<!-- not run: needs two hosts -->\n```sh\nfalse\n```\n", "not run: needs two hosts")

    def test_a_block_that_needs_what_is_not_there_is_not_run(self):
        self.assert_green("<!-- needs: no-such-program-here -->\n```sh\nfalse\n```\n", "no no-such-program-here here")

    def test_arguments_are_added_to_every_call(self):
        block = "<!-- run with: rtrun --set a.b=1 -->\n```sh\nrtrun job.toml | grep -q 'got job.toml --set a.b=1'\nbin/rtrun x | grep -q a.b=1\n```\n"
        self.assert_green(block + "```sh\nrtrun job.toml | grep -qv a.b\n```\n")

    def test_arguments_for_a_program_that_is_not_called_are_red(self):
        self.assert_red("<!-- run with: rtrun --quick -->\n```sh\ntrue\n```\n", "does not run it")

    def test_an_expected_exit_code_is_green_and_no_other(self):
        self.assert_green("<!-- exits: 2 -->\n```sh\nexit 2\n```\n")
        self.assert_red("<!-- exits: 2 -->\n```sh\ntrue\n```\n", "0 instead of 2")

    def test_a_block_that_does_not_end_is_red(self):
        self.assert_red("<!-- within: 0.5 s -->\n```sh\nsleep 30 &\nsleep 30\n```\n", "did not end within 0.5 s")

    def test_commands_without_a_language_are_red(self):
        self.assert_red("```\nrtrun job.toml\n```\n", "write ```sh")

    def test_settings_that_rtrun_refuses_are_red(self):
        self.assert_green("```toml\ngood = 1\n```\n")
        self.assert_red("```toml\nbad = 1\n```\n", "refuses it")

    def test_a_link_that_leads_nowhere_is_red(self):
        self.assert_green("# A heading, with words\n[here](#a-heading-with-words) [there](page.md)\n")
        self.assert_red("[x](nowhere.md)\n", "nowhere.md")
        self.assert_red("# Heading\n[x](#other)\n", "#other")

    def test_a_source_file_that_is_named_and_not_there_is_red(self):
        (self.source / "runtime").mkdir()
        (self.source / "runtime" / "there.hpp").write_text("int kHere;")
        self.assert_green("See `runtime/there.hpp` in `runtime/`, and `devices/x`.\n")
        self.assert_red("See `runtime/gone.hpp`.\n", "names runtime/gone.hpp")
        self.assert_red("See `devices/gone/`.\n", "names devices/gone/")

    def test_an_entry_that_is_not_in_the_file_beside_it_is_red(self):
        (self.source / "runtime").mkdir()
        (self.source / "runtime" / "there.hpp").write_text("int kHere;")
        table = "| File | Entry | What |\n|---|---|---|\n| `runtime/there.hpp` | `%s` | `kWhatever` |\n"
        self.assert_green(table % "kHere")
        self.assert_red(table % "kGone", "has `kGone`, which it has not")

    def test_an_option_in_a_sentence_that_help_does_not_know_is_red(self):
        self.assert_green("Write `rtrun --help`, or `something --else`.\n")
        self.assert_red("Write `rtrun --faster job.toml`.\n", "knows no --faster")
        self.assert_red("Write `rtrun fly job.toml`.\n", "knows no fly")

    def test_a_readme_that_leaves_a_page_out_is_red(self):
        (self.source / "docs").mkdir()
        (self.source / "docs" / "forgotten.md").write_text("")
        self.assert_red("All there is.\n", "no link to docs/forgotten.md", name="README.md")
        self.assert_green("[It](docs/forgotten.md)\n", name="README.md")

    def test_code_that_is_not_in_the_source_that_it_is_from_is_red(self):
        (self.source / "there.cpp").write_text("int main() {\n  first();\n\n  second();\n}\n")
        block = "<!-- as in: %s -->\n```cpp\n%s\n```\n"
        self.assert_green(block % ("there.cpp", "first();\nsecond();"))
        self.assert_red(block % ("there.cpp", "first();\nthird();"), "line 2: is not as in there.cpp")
        self.assert_red(block % ("there.cpp", "second();\nfirst();"), "line 2: is not as in there.cpp")
        self.assert_red(block % ("gone.cpp", "first();"), "gone.cpp is not there")

    def test_a_directive_that_stands_alone_is_red(self):
        self.assert_red("<!-- not run: forgotten -->\n\ntext\n", "no block follows")


if __name__ == "__main__":
    unittest.main(verbosity=2)
