#!/usr/bin/env python3
"""Models that ONNX's own Python package builds compute the same after they were read and written again.

Usage: onnx_models_test.py ONNX_TEST. Models are built as PyTorch writes them, with images [rows, channels, height, width];
ONNX_TEST reads each and writes it again; onnxruntime computes both on the same numbers. Skips without onnx and onnxruntime
(pip install onnx onnxruntime).
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    print(f"skipped: {missing}; pip install onnx onnxruntime")
    sys.exit(0)

ROWS, WITHIN = 3, 1e-5
draw = np.random.default_rng(11)


class Model:
    """Nodes one behind the other, with drawn weights."""

    def __init__(self, name, extents, opset=17, external=False):
        self.name, self.extents, self.opset, self.external = name, extents, opset, external
        self.nodes, self.numbers, self.last = [], [], "x"

    def weight(self, name, *shape, positive=False):
        values = draw.normal(0, 0.5, shape).astype(np.float32)
        self.numbers.append(numpy_helper.from_array(np.abs(values) + 0.1 if positive else values, name))
        return name

    def whole(self, name, values):
        self.numbers.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def number(self, name, value):
        self.numbers.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def node(self, operation, *more, read=None, **attributes):
        output = f"/{operation}_{len(self.nodes)}_output_0"
        inputs = [self.last, *more] if read is None else read
        self.nodes.append(helper.make_node(operation, inputs, [output], name=output[:-len("_output_0")], **attributes))
        self.last = output
        return output

    def half(self, name, *shape):
        """f16 weights, which a Cast makes f32."""
        values = draw.normal(0, 0.5, shape).astype(np.float16)
        self.numbers.append(numpy_helper.from_array(values, name))
        self.nodes.append(helper.make_node("Cast", [name], [name + "_f32"], to=onnx.TensorProto.FLOAT))
        return name + "_f32"

    def write(self, path):
        values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                  for name, shape in (("x", ["rows", *self.extents]), (self.last, ["rows", 4]))]
        graph = helper.make_graph(self.nodes, self.name, values[:1], values[1:], self.numbers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        onnx.checker.check_model(model)
        onnx.save(model, path, save_as_external_data=self.external, location=path.stem + ".bin", size_threshold=100)


def residual():
    m = Model("residual", (3, 10, 8))
    m.node("Conv", m.weight("stem.weight", 8, 3, 3, 3), pads=[1, 1, 1, 1])
    m.node("BatchNormalization", m.weight("bn.weight", 8), m.weight("bn.bias", 8), m.weight("bn.running_mean", 8),
           m.weight("bn.running_var", 8, positive=True))
    stream = m.node("Relu")
    m.node("Conv", m.weight("grouped.weight", 8, 4, 3, 3), m.weight("grouped.bias", 8), group=2, dilations=[2, 2],
           pads=[2, 2, 2, 2])
    m.node("Add", stream)
    m.node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    m.node("AveragePool", kernel_shape=[2, 2], strides=[1, 1])
    m.node("GlobalAveragePool")
    m.node("Flatten")
    m.node("Gemm", m.weight("fc.weight", 4, 8), m.weight("fc.bias", 4), transB=1)
    return m


def flattened():
    m = Model("flattened", (3, 6, 4))
    m.node("Conv", m.weight("conv1.weight", 5, 3, 3, 3), m.weight("conv1.bias", 5), strides=[1, 1])
    m.node("Tanh")
    m.node("Reshape", m.whole("shape", [-1, 5 * 4 * 2]))
    m.node("Gemm", m.weight("fc1.weight", 7, 40), m.weight("fc1.bias", 7), transB=1)
    m.node("Sigmoid")
    m.node("MatMul", m.weight("fc2", 7, 4))
    m.node("Add", m.weight("fc2_bias", 4))
    return m


def branches():
    m = Model("branches", (3, 6, 4))
    one = m.node("Conv", m.weight("a.weight", 4, 3, 1, 1))
    two = m.node("Conv", m.weight("b.weight", 2, 3, 1, 1), read=["x", "b.weight"])
    m.node("Concat", read=[one, two], axis=1)
    m.node("ReduceMean", axes=[2, 3], keepdims=0)
    m.node("Gemm", m.weight("fc.weight", 6, 4))
    return m


def perceptron():
    m = Model("perceptron", (9,))
    m.node("MatMul", m.weight("in.weight", 9, 12))
    read = m.node("Add", m.weight("in_bias", 12))
    m.node("Div", m.number("root", 2 ** 0.5))
    m.node("Erf")
    m.node("Add", m.number("one", 1))
    m.node("Mul", read=[read, m.last])
    m.node("Mul", m.number("half", 0.5))
    m.node("LayerNormalization", m.weight("norm.weight", 12), m.weight("norm.bias", 12), axis=-1)
    m.node("Dropout")
    m.node("Gemm", m.weight("out.weight", 4, 12), m.weight("out.bias", 4), transB=1)
    return m


def elsewhere():
    m = Model("elsewhere", (3, 9, 7), external=True)
    m.node("Pad", m.whole("zeros", [0, 0, 1, 1, 0, 0, 1, 1]))
    m.node("Conv", m.half("conv1.weight", 5, 3, 3, 3), m.weight("conv1.bias", 5), strides=[2, 2])
    m.node("Relu")
    m.node("Conv", m.weight("conv2.weight", 6, 5, 3, 3), auto_pad="SAME_UPPER")
    m.node("GlobalMaxPool")
    m.node("Conv", m.weight("conv3.weight", 7, 6, 1, 1), m.weight("conv3.bias", 7))
    m.node("Squeeze", m.whole("places", [2, 3]))
    m.node("Gemm", m.weight("fc", 7, 4), m.weight("one", 1), alpha=0.5, beta=2.0)
    return m


def outputs(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def main():
    models = [residual(), flattened(), branches(), perceptron(), elsewhere()]
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for model in models:
            model.write(folder / f"{model.name}.onnx")
            first = list(model.extents)
            extents = [first[1], first[2], first[0]] if len(first) == 3 else first
            (folder / f"{model.name}.json").write_text(
                json.dumps({"extents": extents, "tokens": 0, "classes": 4, "output": ""}))
        subprocess.run([sys.argv[1], "--gtest_filter=OnnxImport.WritesAgainWhatOtherProgramsWrote"], check=True, timeout=50,
                       stdout=subprocess.DEVNULL, env={**os.environ, "TROUPE_ONNX_FOLDER": scratch})
        for model in models:
            refused = folder / f"{model.name}.refused"
            if refused.exists():
                failed.append(model.name)
                print(f"{model.name}: {refused.read_text()}")
                continue
            x = draw.normal(0, 1, (ROWS, *model.extents)).astype(np.float32)
            wanted = outputs(folder / f"{model.name}.onnx", x)
            last = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
            found = outputs(folder / f"{model.name}.again.onnx", np.ascontiguousarray(last))
            if found.shape != wanted.shape or np.abs(found - wanted).max() > WITHIN * max(1, np.abs(wanted).max()):
                failed.append(model.name)
                print(f"{model.name}: {found.shape} differs from {wanted.shape} by {np.abs(found - wanted).max()}")
    print(f"{len(models) - len(failed)} of {len(models)} models agree")
    sys.exit(1 if failed else 0)


main()
