"""Troupe for Python: one rank of a training job in this process, over libtroupe.so by ctypes. NumPy sees tensors in place.

    import troupe

    with troupe.Session("app.toml") as session:
        for batch in session.batches():
            sums = session.step()

Start a program alone, or as each rank of a job by `rtrun app.toml -- python3 program.py`. The library is searched for at
TROUPE_LIBRARY, then where it was installed with this file, and then in the system's folders. A session may be used by
one thread at a time, except request_stop(). Functions that fail raise troupe.Error or a subclass, which say what to do.
"""

import ctypes
import glob
import json
import logging
import os
from collections import namedtuple
from collections.abc import Mapping

import numpy

__all__ = ["Error", "Failed", "Invalid", "Environment", "PeersLost", "Parameter", "Session", "Sums", "version"]

_log = logging.getLogger("troupe")
_ABI_VERSION = 3
_OVER = -1


class Error(Exception):
    """An error of Troupe; a program should exit with its `code`."""

    code = 1


class Failed(Error):
    code = 1


class Invalid(Error, ValueError):
    """An argument or a setting is wrong."""

    code = 2


class Environment(Error):
    """The machine lacks something."""

    code = 3


class PeersLost(Error):
    """Other ranks of the job are gone."""

    code = 4


_KINDS = {kind.code: kind for kind in (Failed, Invalid, Environment, PeersLost)}

#: Sums over samples: of the loss, and the number of correct ones.
Sums = namedtuple("Sums", ["loss", "correct", "samples"], defaults=[0.0, 0, 0])
#: A trainable tensor of the app's own model; initialized as N(0, deviation^2), or zeros if deviation is 0.
Parameter = namedtuple("Parameter", ["name", "shape", "deviation"], defaults=[0.0])


class _Sums(ctypes.Structure):
    _fields_ = [("loss", ctypes.c_double), ("correct", ctypes.c_uint64), ("samples", ctypes.c_uint64)]


class _Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("extents", ctypes.POINTER(ctypes.c_uint64)),
                ("extents_count", ctypes.c_size_t), ("deviation", ctypes.c_double)]


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("settings", ctypes.POINTER(ctypes.c_char_p)),
                ("settings_count", ctypes.c_size_t), ("model", ctypes.c_char_p),
                ("parameters", ctypes.POINTER(_Parameter)), ("parameters_count", ctypes.c_size_t),
                ("own_samples", ctypes.c_uint64)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("dtype", _DType), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Tensor(ctypes.Structure):
    pass


_TensorPointer = ctypes.POINTER(_Tensor)
_Tensor._fields_ = [("dl", _DLTensor), ("manager", ctypes.c_void_p),
                    ("deleter", ctypes.CFUNCTYPE(None, _TensorPointer))]
_TYPES = {(2, 32): "<f4", (2, 64): "<f8", (0, 32): "<i4", (4, 16): "<u2"}  # the last one: bfloat16, as its bits


def _find_library():
    named = os.environ.get("TROUPE_LIBRARY")
    if named:
        return named
    prefix = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
    for pattern in ("lib/*/libtroupe.so.1", "lib/libtroupe.so.1", "lib64/libtroupe.so.1"):
        found = glob.glob(os.path.join(prefix, pattern))
        if found:
            return found[0]
    return "libtroupe.so.1"


def _load():
    name = _find_library()
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(f"cannot load {name}: {error}; set TROUPE_LIBRARY to the path of libtroupe.so") from error
    if library.troupe_abi_version() != _ABI_VERSION:
        raise ImportError(f"{name} has the interface version {library.troupe_abi_version()}, troupe.py was made for "
                          f"{_ABI_VERSION}: install both from the same Troupe")
    session, tensor = ctypes.c_void_p, ctypes.POINTER(_TensorPointer)
    functions = {
        "error": (ctypes.c_char_p, []),
        "version": (ctypes.c_char_p, []),
        "start": (ctypes.c_int, [ctypes.POINTER(_Options), ctypes.POINTER(session)]),
        "rank": (ctypes.c_int, [session, ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32)]),
        "next": (ctypes.c_int, [session, tensor, tensor]),
        "step": (ctypes.c_int, [session, ctypes.POINTER(_Sums)]),
        "exchange": (ctypes.c_int, [session, tensor, ctypes.c_size_t, ctypes.POINTER(_Sums), ctypes.POINTER(_Sums)]),
        "field_count": (ctypes.c_size_t, [session]),
        "field_name": (ctypes.c_char_p, [session, ctypes.c_size_t]),
        "field": (ctypes.c_int, [session, ctypes.c_size_t, tensor]),
        "tensor_count": (ctypes.c_size_t, [session]),
        "tensor_name": (ctypes.c_char_p, [session, ctypes.c_size_t]),
        "parameters": (ctypes.c_int, [session, ctypes.c_size_t, tensor]),
        "gradients": (ctypes.c_int, [session, ctypes.c_size_t, tensor]),
        "report": (ctypes.c_int, [session, ctypes.POINTER(ctypes.c_char_p)]),
        "report_value": (ctypes.c_int, [session, ctypes.c_char_p, ctypes.c_double]),
        "request_stop": (None, [session]),
        "finish": (ctypes.c_int, [session]),
        "free": (None, [session]),
    }
    for function, (result, arguments) in functions.items():
        found = getattr(library, "troupe_" + function)
        found.restype, found.argtypes = result, arguments
    return library


_library = _load()


def version():
    """The version of the library, "0.1.0"."""
    return _library.troupe_version().decode()


def _check(code):
    """Returns False if the job is over; raises if the call failed."""
    if code > 0:
        raise _KINDS.get(code, Failed)(_library.troupe_error().decode(errors="replace"))
    return code != _OVER


def _c_text(text):
    """As C has it: bytes without a zero."""
    made = os.fsencode(text)
    if b"\0" in made:
        raise Invalid(f"{text!r} has a zero character, which no path, setting or name can have: leave it out")
    return made


class _Handle:
    """The library's session; freed when neither it nor its memory is used any more."""

    def __init__(self):
        self.pointer = ctypes.c_void_p()

    def __del__(self):
        if self.pointer:
            _library.troupe_free(self.pointer)


class _Memory:
    """The interface through which NumPy uses a tensor in place; keeps the session's memory alive."""

    def __init__(self, handle, tensor, writable):
        dl = tensor.contents.dl
        self.handle = handle
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(dl.shape[axis] for axis in range(dl.ndim)),
            "typestr": _TYPES[(dl.dtype.code, dl.dtype.bits)],
            "data": ((dl.data or 0) + dl.byte_offset, not writable),
        }
        tensor.contents.deleter(tensor)  # frees only the description


def _in_place(handle, tensor, writable=False):
    return numpy.asarray(_Memory(handle, tensor, writable))


class _Arrays(Mapping):
    """Arrays in the session's memory by name. An assignment writes into the array, since another array in its place
    would have no effect on the session."""

    def __init__(self, arrays):
        self._arrays = arrays

    def __getitem__(self, name):
        return self._arrays[name]

    def __setitem__(self, name, value):
        self._arrays[name][...] = value

    def __iter__(self):
        return iter(self._arrays)

    def __len__(self):
        return len(self._arrays)

    def __repr__(self):
        return repr(self._arrays)


def _plain(value):
    """A value that JSON does not know, as one that it knows: a path, or NumPy's numbers."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (numpy.generic, numpy.ndarray)):
        return value.tolist()
    raise Invalid(f"{value!r} cannot be a setting: give a number, a text, a path, or a list of these")


def _texts(settings):
    """`settings` as "a.b=c" texts, from such texts or from a dict {"a.b": value}."""
    if isinstance(settings, str):
        return [settings]
    if not isinstance(settings, dict):
        return [str(setting) for setting in settings]
    # Numbers, booleans, strings and lists are the same in JSON and TOML, except for JSON's escapes of rare characters.
    return [f"{key}={json.dumps(value, default=_plain, ensure_ascii=False)}" for key, value in settings.items()]


class Session:
    """One rank of a job: joins it and builds everything for the first step.

    file: app.toml; None: the defaults. settings: override it, ["train.epochs=3"] or {"train.epochs": 3}.
    parameters: a model with gradients that the app computes, as Parameter or (name, shape[, deviation]).
    own_samples: not 0: the app has its own samples, this number per epoch over all ranks; no data set is read.

    `parameters` and `gradients` are mappings from names to arrays in the session's own memory: parameters change in
    step() and exchange() and cannot be written; gradients must be written before exchange(). `gradients["w"] = g` copies
    g into that memory. In a `with` statement, finish() is called at the end of the block, unless the block raises: then
    the other ranks count this one as lost. A child of fork() must start a session of its own.
    """

    def __init__(self, file=None, settings=(), *, model="own", parameters=(), own_samples=0):
        texts = [_c_text(text) for text in _texts(settings)]
        listed = [Parameter(*one) for one in parameters]
        extents = [(ctypes.c_uint64 * len(one.shape))(*one.shape) for one in listed]
        described = (_Parameter * len(listed))(
            *(_Parameter(_c_text(one.name), ctypes.cast(shape, ctypes.POINTER(ctypes.c_uint64)), len(one.shape),
                         one.deviation) for one, shape in zip(listed, extents)))
        options = _Options(size=ctypes.sizeof(_Options), file=_c_text(file) if file is not None else None,
                           settings=(ctypes.c_char_p * len(texts))(*texts), settings_count=len(texts),
                           model=_c_text(model) if listed else None, parameters=described if listed else None,
                           parameters_count=len(listed), own_samples=own_samples)
        self._handle = _Handle()
        self._finished = False
        _check(_library.troupe_start(ctypes.byref(options), ctypes.byref(self._handle.pointer)))
        rank, ranks = ctypes.c_uint32(), ctypes.c_uint32()
        _check(_library.troupe_rank(self._pointer, ctypes.byref(rank), ctypes.byref(ranks)))
        self.rank, self.ranks = rank.value, ranks.value
        tensors = _library.troupe_tensor_count, _library.troupe_tensor_name
        self._parameters = _Arrays(self._named(*tensors, _library.troupe_parameters, False))
        self._gradients = _Arrays(self._named(*tensors, _library.troupe_gradients, True))
        for note in self.summary()["notes"]:
            _log.warning("%s", note)

    @property
    def parameters(self):
        return self._parameters

    @property
    def gradients(self):
        return self._gradients

    @property
    def _pointer(self):
        return self._handle.pointer

    def _named(self, count, name, function, writable):
        found = {}
        for index in range(count(self._pointer)):
            tensor = _TensorPointer()
            _check(function(self._pointer, index, ctypes.byref(tensor)))
            found[name(self._pointer, index).decode()] = _in_place(self._handle, tensor, writable)
        return found

    def next(self):
        """The next batch, the same one until its step is taken, as a dict of its fields: batch["image"] [rows, height,
        width, channels] float32 (in a bf16 job the bits, as uint16), batch["label"] [rows] int32; labels below 0
        do not count. All are valid until the step is taken. None: the job has no more steps, or was ended."""
        if not _check(_library.troupe_next(self._pointer, None, None)):
            return None
        return self._named(_library.troupe_field_count, _library.troupe_field_name, _library.troupe_field, False)

    def batches(self):
        """All batches; call step() or exchange() for each."""
        while True:
            batch = self.next()
            if batch is None:
                return
            yield batch

    def step(self):
        """Trains on the batch of next(); returns the Sums over all ranks. None: the run was over before. With policies
        whose ranks do not exchange in every step the Sums of a step without an exchange are zeros."""
        total = _Sums()
        going = _check(_library.troupe_step(self._pointer, ctypes.byref(total)))
        return Sums(total.loss, total.correct, total.samples) if going else None

    def exchange(self, loss=0.0, correct=0, samples=0):
        """A step with the gradients in `gradients`, which are sums over this rank's samples. The arguments are sums over
        them, too. Returns the Sums over all ranks; None: the run was over before."""
        own, total = _Sums(loss, correct, samples), _Sums()
        going = _check(_library.troupe_exchange(self._pointer, None, 0, ctypes.byref(own), ctypes.byref(total)))
        return Sums(total.loss, total.correct, total.samples) if going else None

    def summary(self):
        """The run so far: rank, ranks, steps, samples, epochs with loss and accuracy (rank 0), notes, the plan, and
        after finish() how it ended."""
        text = ctypes.c_char_p()
        _check(_library.troupe_report(self._pointer, ctypes.byref(text)))
        return json.loads(text.value.decode())

    def report(self, name, value):
        """Reports a number under a name for people: each line of rank 0's log (report.dir), of log.csv beside it and of
        summary() has the mean of the values that all ranks reported since the previous line: the sum over all calls at
        all ranks, divided by the number of calls. A call belongs to the step that this rank is at, which lasts from the
        next() that returned its batch to the following one. If the app does not call next(), as with own_samples, a call
        belongs to the exchange() that follows it, and after the last one to that. A value that is not finite makes the
        line's value None. name: up to 64 characters of a-z, 0-9, "_", ".", "/" and "-", not a key of the log itself; at
        most 256 names. Not after finish()."""
        _check(_library.troupe_report_value(self._pointer, _c_text(str(name)), float(value)))

    def request_stop(self):
        """Asks the whole job to end after the steps that are in progress. Any thread."""
        _library.troupe_request_stop(self._pointer)

    def finish(self):
        """Ends the loop: asks the job to end unless it is at its end, waits for the others, ends everything. Returns the
        summary. Raises the error that ended the job, if there was one."""
        if not self._finished:
            self._finished = True
            _check(_library.troupe_finish(self._pointer))
        return self.summary()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.finish()
