"""The C functions of libtroupe.so as Python's ctypes calls them. Arguments: the library, then unittest's."""

import ctypes
import json
import os
import signal
import sys
import tempfile
import unittest

from small_data import SAMPLES, SIDE, write_data

try:
    import numpy
except ImportError:
    numpy = None

LIBRARY = sys.argv.pop(1)


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int), ("dtype", DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class ManagedTensor(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(ManagedTensor))
ManagedTensor._fields_ = [("dl_tensor", Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", Deleter)]
TensorPointer = ctypes.POINTER(ManagedTensor)


class Sums(ctypes.Structure):
    _fields_ = [("loss", ctypes.c_double), ("correct", ctypes.c_uint64), ("samples", ctypes.c_uint64)]


class Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("extents", ctypes.POINTER(ctypes.c_uint64)),
                ("extents_count", ctypes.c_size_t), ("deviation", ctypes.c_double)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("settings", ctypes.POINTER(ctypes.c_char_p)),
                ("settings_count", ctypes.c_size_t), ("model", ctypes.c_char_p),
                ("parameters", ctypes.POINTER(Parameter)), ("parameters_count", ctypes.c_size_t),
                ("own_samples", ctypes.c_uint64)]


class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("rest", ctypes.c_byte * 256)]


libc = ctypes.CDLL(None)


def handlers():
    found = []
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        action = Action()
        libc.sigaction(int(number), None, ctypes.byref(action))
        found.append(action.handler)
    return found


HANDLERS = handlers()
troupe = ctypes.CDLL(LIBRARY)
troupe.troupe_error.restype = ctypes.c_char_p
troupe.troupe_tensor_count.restype = ctypes.c_size_t
troupe.troupe_tensor_name.restype = ctypes.c_char_p
troupe.troupe_field_count.restype = ctypes.c_size_t
troupe.troupe_field_name.restype = ctypes.c_char_p
for function in ("start", "next", "step", "exchange", "parameters", "gradients", "report", "finish"):
    getattr(troupe, "troupe_" + function).restype = ctypes.c_int
OVER, OK, INVALID = -1, 0, 2


def error():
    return troupe.troupe_error().decode()


def numbers(tensor, kind):
    """The elements of a tensor as a ctypes array, in place."""
    described = tensor.contents.dl_tensor
    count = 1
    for axis in range(described.ndim):
        count *= described.shape[axis]
    return ctypes.cast(described.data + described.byte_offset, ctypes.POINTER(kind * count)).contents


class Capsule:
    """What numpy.from_dlpack wants."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.cast(self.tensor, ctypes.c_void_p), b"dltensor", None)

    def __dlpack_device__(self):
        device = self.tensor.contents.dl_tensor.device
        return (device.device_type, device.device_id)


class Session:
    def __init__(self, folder, settings, parameters=(), own_samples=0):
        texts = [b"checkpoint.every_steps=0", f"report.dir='{folder}/run'".encode()] + [s.encode() for s in settings]
        self.kept = [(ctypes.c_char_p * len(texts))(*texts)]
        options = Options(size=ctypes.sizeof(Options), settings=self.kept[0], settings_count=len(texts))
        if parameters:
            self.kept += [(ctypes.c_uint64 * len(extents))(*extents) for _, extents in parameters]
            listed = [Parameter(name.encode(), ctypes.cast(extents, ctypes.POINTER(ctypes.c_uint64)), len(extents), 0.0)
                      for (name, _), extents in zip(parameters, self.kept[1:])]
            self.kept.append((Parameter * len(listed))(*listed))
            options.model, options.parameters, options.parameters_count = b"own", self.kept[-1], len(listed)
        options.own_samples = own_samples
        self.pointer = ctypes.c_void_p()
        self.code = troupe.troupe_start(ctypes.byref(options), ctypes.byref(self.pointer))

    def next(self):
        inputs, labels = TensorPointer(), TensorPointer()
        code = troupe.troupe_next(self.pointer, ctypes.byref(inputs), ctypes.byref(labels))
        return code, inputs, labels

    def step(self):
        total = Sums()
        return troupe.troupe_step(self.pointer, ctypes.byref(total)), total

    def tensor(self, what, index):
        found = TensorPointer()
        assert getattr(troupe, "troupe_" + what)(self.pointer, ctypes.c_size_t(index), ctypes.byref(found)) == OK, error()
        return found

    def exchange(self, own, gradients=None):
        total = Sums()
        count = ctypes.c_size_t(len(gradients) if gradients else 0)
        listed = (TensorPointer * len(gradients))(*gradients) if gradients else None
        return troupe.troupe_exchange(self.pointer, listed, count, ctypes.byref(own), ctypes.byref(total)), total

    def report(self):
        text = ctypes.c_char_p()
        assert troupe.troupe_report(self.pointer, ctypes.byref(text)) == OK, error()
        return json.loads(text.value)

    def finish(self):
        return troupe.troupe_finish(self.pointer)

    def free(self):
        troupe.troupe_free(self.pointer)


class CFunctions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        write_data(self.folder.name)
        os.environ.pop("TROUPE_DATA", None)

    def on_data(self, *settings):
        return Session(self.folder.name,
                       [f"data.path='{self.folder.name}/data'", "data.batch=20", "model.units=[8]", *settings])

    def on_own(self, *settings):
        return Session(self.folder.name, ["optimizer.rule='sgd'", "optimizer.rate=0.5", *settings],
                       [("w", [2, 1]), ("b", [1])], own_samples=100)

    def test_the_version_is_the_headers(self):
        self.assertEqual(troupe.troupe_abi_version(), 3)

    def test_a_wrong_setting_is_named_with_its_cure(self):
        session = self.on_data("train.epoch=3")
        self.assertEqual(session.code, INVALID)
        self.assertFalse(session.pointer)
        self.assertIn("train.epochs", error())

    def test_a_session_without_arguments_is_refused(self):
        self.assertEqual(troupe.troupe_start(None, None), INVALID)
        self.assertEqual(troupe.troupe_step(None, None), INVALID)
        self.assertIn("NULL", error())

    def test_batches_are_the_files_samples(self):
        session = self.on_data("train.epochs=1")
        self.assertEqual(session.code, OK, error())
        seen = []
        while True:
            code, inputs, labels = session.next()
            if code == OVER:
                break
            self.assertEqual(code, OK, error())
            rows = numbers(inputs, ctypes.c_float)
            for row, label in enumerate(numbers(labels, ctypes.c_int32)):
                sample = round(rows[row * SIDE * SIDE] * 255)
                self.assertEqual(sample % 10, label)
                seen.append(sample)
            for tensor in (inputs, labels):
                tensor.contents.deleter(tensor)
            self.assertEqual(session.step()[0], OK, error())
        self.assertEqual(sorted(seen), list(range(SAMPLES)))
        self.assertEqual(session.finish(), OK, error())
        report = session.report()
        self.assertTrue(report["finished"])
        self.assertEqual(report["steps"], 3)
        self.assertEqual(len(report["epochs"]), 1)
        session.free()

    def test_fields_have_names_and_the_shape_of_a_sample(self):
        session = self.on_data("train.epochs=1")
        self.assertEqual(troupe.troupe_field_count(session.pointer), 0)  # no batch yet
        self.assertEqual(session.next()[0], OK, error())
        count = troupe.troupe_field_count(session.pointer)
        names = [troupe.troupe_field_name(session.pointer, ctypes.c_size_t(i)) for i in range(count)]
        self.assertEqual(names, [b"image", b"label"])
        self.assertIsNone(troupe.troupe_field_name(session.pointer, ctypes.c_size_t(2)))
        shapes = []
        for index in range(count):
            field = session.tensor("field", index)
            tensor = field.contents.dl_tensor
            shapes.append([tensor.shape[axis] for axis in range(tensor.ndim)])
            field.contents.deleter(field)
        self.assertEqual(shapes, [[20, SIDE, SIDE, 1], [20]])
        stray = TensorPointer()
        self.assertEqual(troupe.troupe_field(session.pointer, ctypes.c_size_t(2), ctypes.byref(stray)), INVALID)
        self.assertIn("no field 2; the batch has 2", error())
        self.assertEqual(session.step()[0], OK, error())
        self.assertEqual(troupe.troupe_field_count(session.pointer), 0)
        self.assertEqual(troupe.troupe_field(session.pointer, ctypes.c_size_t(0), ctypes.byref(stray)), INVALID)
        self.assertIn("call troupe_next first", error())
        session.finish()
        session.free()

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_takes_the_tensors(self):
        session = self.on_data("train.epochs=1")
        code, inputs, labels = session.next()
        self.assertEqual(code, OK, error())
        images = numpy.from_dlpack(Capsule(inputs))
        self.assertEqual(images.shape, (20, SIDE * SIDE))
        self.assertEqual(images.dtype, numpy.float32)
        numpy.testing.assert_array_equal(numpy.rint(images[:, 0] * 255).astype(int) % 10,
                                         numpy.from_dlpack(Capsule(labels)))
        self.assertEqual(troupe.troupe_tensor_name(session.pointer, ctypes.c_size_t(0)), b"l1.weight")
        self.assertEqual(numpy.from_dlpack(Capsule(session.tensor("parameters", 0))).shape, (8, SIDE * SIDE))
        self.assertEqual(session.finish(), OK, error())
        session.free()

    def test_gradients_of_the_app_train(self):
        session = self.on_own("train.steps=40")
        self.assertEqual(session.code, OK, error())
        weights = numbers(session.tensor("parameters", 0), ctypes.c_float)
        given = session.tensor("gradients", 0), session.tensor("gradients", 1)
        goal = (3.0, -2.0)
        steps = 0
        while True:
            for i, gradient in enumerate((numbers(given[0], ctypes.c_float))):
                numbers(given[0], ctypes.c_float)[i] = 10 * (weights[i] - goal[i])
            # In place at first, then as tensors.
            code, total = session.exchange(Sums(1.5, 0, 10), given if steps % 2 else None)
            if code == OVER:
                break
            self.assertEqual(code, OK, error())
            self.assertEqual((total.loss, total.samples), (1.5, 10))
            steps += 1
        self.assertEqual(steps, 40)
        for found, wanted in zip(weights, goal):
            self.assertAlmostEqual(found, wanted, places=4)
        self.assertEqual(session.finish(), OK, error())
        session.free()

    def test_gradients_that_do_not_fit_are_named(self):
        session = self.on_own("train.steps=4")
        good = [session.tensor("parameters", i) for i in range(2)]
        for gradients, text in ((good[:1], "1 gradients"), (good[::-1], "extents [2, 1]")):
            self.assertEqual(session.exchange(Sums(0, 0, 1), gradients)[0], INVALID)
            self.assertIn(text, error())
        self.assertEqual(session.exchange(Sums(0, 2, 1), good)[0], INVALID)
        self.assertIn("1 samples, 2 of them correct", error())
        good[1].contents.dl_tensor.dtype.bits = 64
        self.assertEqual(session.exchange(Sums(0, 0, 1), good)[0], INVALID)
        self.assertIn("f32", error())
        good[1].contents.dl_tensor.dtype.bits = 32
        good[1].contents.dl_tensor.shape = None
        self.assertEqual(session.exchange(Sums(0, 0, 1), good)[0], INVALID)
        self.assertIn("1 axes and no shape", error())
        session.free()

    def test_two_sessions_take_steps_in_turn(self):
        sessions = [self.on_data("train.steps=5"),
                    self.on_own("train.steps=5", f"report.dir='{self.folder.name}/other'")]
        for _ in range(5):
            self.assertEqual(sessions[0].next()[0], OK, error())
            self.assertEqual(sessions[0].step()[0], OK, error())
            self.assertEqual(sessions[1].exchange(Sums(0, 0, 1))[0], OK, error())
        for session in sessions:
            self.assertEqual(session.finish(), OK, error())
            session.free()

    def test_a_request_to_stop_ends_the_loop(self):
        session = self.on_own("train.steps=1000000")
        self.assertEqual(session.exchange(Sums(0, 0, 1))[0], OK, error())
        troupe.troupe_request_stop(session.pointer)
        steps = 1
        while session.exchange(Sums(0, 0, 1))[0] == OK:
            steps += 1
        self.assertLess(steps, 20)
        self.assertEqual(session.finish(), OK, error())
        self.assertTrue(session.report()["stopped"])
        session.free()

    def test_signals_and_stdout_are_the_apps(self):
        with tempfile.TemporaryFile() as file:
            kept = os.dup(1)
            os.dup2(file.fileno(), 1)
            try:
                session = self.on_data("train.epochs=1")
                while session.next()[0] == OK:
                    session.step()
                code = session.finish()
                session.free()
            finally:
                os.dup2(kept, 1)
                os.close(kept)
            self.assertEqual(code, OK, error())
            file.seek(0)
            self.assertEqual(file.read(), b"")
        self.assertEqual(handlers(), HANDLERS)


if __name__ == "__main__":
    unittest.main()
