"""troupe.py over libtroupe.so. Arguments: the folder of troupe.py, loop.py, rtrun, then unittest's; TROUPE_LIBRARY names the library."""

import csv
import gc
import json
import logging
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import unittest

from small_data import SAMPLES, SIDE, write_data

try:
    import numpy
except ImportError:
    print("skipped: no numpy (Debian: python3-numpy)")
    sys.exit(77)

MODULE_FOLDER, LOOP, RTRUN = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, MODULE_FOLDER)
import troupe  # noqa: E402


class Module(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        write_data(self.folder.name)
        os.environ.pop("TROUPE_DATA", None)
        self.common = {"checkpoint.every_steps": 0, "report.dir": self.folder.name + "/run"}

    def on_data(self, **more):
        settings = {"data.path": self.folder.name + "/data", "data.batch": 20, "model.units": [8], "train.epochs": 1}
        settings.update({key.replace("__", "."): value for key, value in more.items()})
        return troupe.Session(settings={**self.common, **settings})

    def on_own(self, steps):
        settings = {"optimizer.rule": "sgd", "optimizer.rate": 0.5, "train.steps": steps}
        return troupe.Session(settings={**self.common, **settings}, parameters=[("w", [2, 1]), ("b", [1], 0.1)],
                              own_samples=100)

    def test_tensors_in_a_gpus_memory_are_refused_in_words(self):
        host = os.environ["CUDA_HOST_FOLDER"]
        script = ("import sys, troupe\n"
                  "settings = {'data.path': sys.argv[1] + '/data', 'data.batch': 20, 'model.units': [8], 'train.epochs': 1,\n"
                  "            'checkpoint.every_steps': 0, 'report.dir': sys.argv[1] + '/run', 'placement.device': sys.argv[2]}\n"
                  "try:\n"
                  "    with troupe.Session(settings=settings) as session:\n"
                  "        print(sorted(session.parameters))\n"
                  "except troupe.Error as error:\n"
                  "    print(error)\n")
        for device, said in (("auto", "l1.weight"), ("cuda", "is in the memory of a GPU")):
            run = subprocess.run([sys.executable, "-c", script, self.folder.name, device], capture_output=True, text=True, timeout=60,
                                 env={**os.environ, "LD_LIBRARY_PATH": host, "PYTHONPATH": MODULE_FOLDER})
            self.assertIn(said, run.stdout, run.stderr)

    def test_batches_are_the_files_samples_in_place(self):
        seen = []
        with self.on_data() as session:
            self.assertEqual((session.rank, session.ranks), (0, 1))
            for batch in session.batches():
                self.assertEqual(list(batch), ["image", "label"])
                images, labels = batch["image"], batch["label"]
                self.assertEqual((images.shape, images.dtype), ((20, SIDE, SIDE, 1), numpy.float32))
                self.assertEqual((labels.shape, labels.dtype), ((20,), numpy.int32))
                self.assertEqual(images.ctypes.data, session.next()["image"].ctypes.data)
                samples = numpy.rint(images[:, 0, 0, 0] * 255).astype(int)
                numpy.testing.assert_array_equal(samples % 10, labels)
                seen += list(samples)
                sums = session.step()
                self.assertEqual(sums.samples, 20)
                self.assertGreater(sums.loss, 0)
        self.assertEqual(sorted(seen), list(range(SAMPLES)))
        summary = session.summary()
        self.assertTrue(summary["finished"])
        self.assertEqual(len(summary["epochs"]), 1)

    def test_gradients_written_in_place_train(self):
        with self.on_own(40) as session:
            w, gradient = session.parameters["w"], session.gradients["w"]
            goal = numpy.array([[3.0], [-2.0]], dtype=numpy.float32)
            steps = 0
            while True:
                gradient[:] = 10 * (w - goal)
                session.gradients["b"].fill(0)
                total = session.exchange(loss=1.5, samples=10)
                if total is None:
                    break
                self.assertEqual(total, troupe.Sums(1.5, 0, 10))
                steps += 1
        self.assertEqual(steps, 40)
        numpy.testing.assert_allclose(w, goal, atol=1e-4)

    def test_what_is_reported_is_in_the_summary_and_in_the_log(self):
        with self.on_own(40) as session:  # 100 samples an epoch, 100 a step
            for step in range(40):
                session.report("step", step)
                session.report("odd/step", float("nan") if step == 2 else step % 2)
                session.exchange(samples=10)
            with self.assertRaisesRegex(troupe.Invalid, "characters"):
                session.report("Bad name", 1)
            with self.assertRaisesRegex(troupe.Invalid, "something else"):
                session.report("main/loss", 1)
        epochs = session.summary()["epochs"]
        self.assertEqual([line["values"]["step"] for line in epochs], list(range(40)))
        self.assertIsNone(epochs[2]["values"]["odd/step"])
        self.assertEqual(epochs[3]["values"]["odd/step"], 1)
        self.assertEqual(len([note for note in session.summary()["notes"] if "odd/step" in note]), 1)
        with open(self.folder.name + "/run/log") as file:
            self.assertEqual([line["step"] for line in json.load(file)], list(range(40)))
        with open(self.folder.name + "/run/log.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([float(row["step"]) for row in rows], list(range(40)))
        self.assertEqual(rows[2]["odd/step"], "nan")
        with self.assertRaisesRegex(troupe.Invalid, "finished"):
            session.report("step", 1)

    def test_parameters_cannot_be_written(self):
        with self.on_own(2) as session:
            with self.assertRaises(ValueError):
                session.parameters["w"][0] = 1

    def test_gradients_that_are_assigned_by_name_are_written_in_place(self):
        with self.on_own(2) as session:
            session.gradients["w"] = numpy.array([[10.0], [20.0]])
            session.gradients["w"] /= 2
            session.gradients["b"] = 0
            session.exchange(samples=10)
            numpy.testing.assert_allclose(session.parameters["w"], [[-0.25], [-0.5]])
            with self.assertRaises(ValueError):
                session.gradients["w"] = numpy.zeros([3, 1])
            with self.assertRaises(KeyError):
                session.gradients["weight"] = 0
            with self.assertRaises(ValueError):
                session.parameters["w"] = 1
            with self.assertRaises(AttributeError):
                session.gradients = {}

    def test_settings_are_paths_numbers_of_numpy_and_any_text(self):
        folder = pathlib.Path(self.folder.name) / "\U0001f600 \u00fc"
        settings = {**self.common, "report.dir": folder, "train.steps": numpy.int64(3), "optimizer.rule": "sgd"}
        with troupe.Session(settings=settings, parameters=[("w", [2])], own_samples=10) as session:
            while session.exchange(samples=1):
                pass
        self.assertEqual(session.summary()["committed"], 3)
        self.assertTrue((folder / "log").exists())
        with self.assertRaisesRegex(troupe.Invalid, "data.batsh"):
            troupe.Session(None, "data.batsh=5")
        with self.assertRaisesRegex(troupe.Invalid, "cannot be a setting"):
            troupe.Session(settings={"data.batch": object()})

    def test_a_child_of_fork_can_end_but_not_use_its_parents_session(self):
        with self.on_own(3) as session:
            session.exchange(samples=1)
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    session.exchange(samples=1)
                except troupe.Invalid as error:
                    os.write(writing, str(error).encode())
                session.request_stop()
                del session
                gc.collect()
                os._exit(7)
            os.close(writing)
            try:  # the pipe's end is the child's end
                said = b""
                while select.select([reading], [], [], 30)[0] and (more := os.read(reading, 1000)):
                    said += more
            finally:
                os.kill(child, signal.SIGKILL)
                os.close(reading)
                status = os.waitpid(child, 0)[1]
            self.assertIn("fork", said.decode())
            self.assertEqual(os.waitstatus_to_exitcode(status), 7)
            self.assertIsNotNone(session.exchange(samples=1))

    def test_arrays_outlive_their_session(self):
        session = self.on_own(2)
        session.exchange(samples=1)
        session.finish()
        kept = session.parameters["w"]
        before = kept.copy()
        del session
        gc.collect()
        numpy.testing.assert_array_equal(kept, before)

    def test_errors_have_kinds_and_texts(self):
        with self.assertRaisesRegex(troupe.Invalid, "train.epochs") as caught:
            self.on_data(train__epoch=3)
        self.assertEqual(caught.exception.code, 2)
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaisesRegex(troupe.Error, "no-such-file"):
            troupe.Session(self.folder.name + "/no-such-file.toml")
        with self.on_own(2) as session:
            with self.assertRaisesRegex(troupe.Invalid, "exchange"):
                session.step()
            with self.assertRaisesRegex(troupe.Invalid, "negative"):
                session.exchange(samples=-1)
        with self.assertRaisesRegex(troupe.Invalid, "negative"):
            troupe.Session(settings=self.common, parameters=[("w", [2])], own_samples=-1)
        with self.assertRaisesRegex(troupe.Invalid, "zero character"):
            troupe.Session(settings=["report.dir=a\0b"])
        with self.assertRaisesRegex(troupe.Invalid, "zero character"):
            troupe.Session(settings=self.common, parameters=[("w\0x", [2])], own_samples=1)

    def test_a_request_to_stop_ends_the_loop(self):
        with self.on_own(1000000) as session:
            session.exchange(samples=1)
            session.request_stop()
            steps = 1
            while session.exchange(samples=1):
                steps += 1
            self.assertLess(steps, 20)
        self.assertTrue(session.summary()["stopped"])

    def test_the_example_trains_on_two_ranks_of_rtrun(self):
        with open(self.folder.name + "/app.toml", "w") as file:
            file.write("cluster = { nodes = 'local:2' }\ndata = { path = 'data', batch = 10 }\nmodel = { units = [8] }\n"
                       "train = { steps = 200 }\nplacement = { cores = 0 }\ncheckpoint = { every_steps = 0 }\n")
        done = subprocess.run([RTRUN, "app.toml", "--", sys.executable, LOOP, "app.toml"], cwd=self.folder.name,
                              env={**os.environ, "PYTHONPATH": MODULE_FOLDER}, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("step 200: loss ", done.stdout)
        self.assertIn("images (10, 4, 4, 1)", done.stdout)
        self.assertIn("test accuracy ", done.stdout)

    def test_a_session_that_is_alone_by_mistake_is_told_of(self):
        with self.assertLogs("troupe", logging.WARNING) as logged:
            with self.on_data(cluster__nodes="local:2"):
                pass
        self.assertIn("cluster.nodes asks for 2 ranks", logged.output[0])


if __name__ == "__main__":
    unittest.main()
