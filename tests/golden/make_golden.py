#!/usr/bin/env python3
"""Writes what PyTorch computes for each kind of layer, each rule of an optimizer and a few small networks.

One file a case, CASE.json: a model as app.toml writes it, its starting parameters, batches, and, computed in f64, what
a step has (the loss summed over the samples, the gradients of that sum), what an evaluation has, and where an
optimizer's steps lead. tests/contracts/golden_contract.hpp holds devices to them. It needs PyTorch, whose version the
files tell.

Numbers that a model starts from are multiples of 1/32 below 2, which f32 and bf16 hold exactly. The seed is the first
one that keeps away from the kinks of ReLU and of maxima, so that rounding never takes the other side.

Exit codes: 0 done, 1 no PyTorch, 2 wrong use, 3 a file that cannot be written.
"""
import argparse
import fnmatch
import json
import math
import random
import sys
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("make_golden.py needs PyTorch: pip install torch")

GRID = 32  # of starting numbers: multiples of 1/32
MOST_SEEDS = 1000
COLUMNS = 120


class AtKink(Exception):
    """A number is so near a kink that rounding could take the other side."""


# Models. A layer is what app.toml has in model.layers: a dict of kind, attributes, name and inputs, or the kind alone.


def layer(kind, **attributes):
    return {"kind": kind, **attributes}


def is_loss(entry):
    kind = entry if isinstance(entry, str) else entry["kind"]
    return kind in ("softmax_cross_entropy", "smooth_l1", "sigmoid_cross_entropy")


def with_names_and_inputs(layers, first_field):
    """As the program completes a list: kind_1, kind_2 are names, a layer reads the one before, a loss comes last."""
    counts, done = {}, []
    for entry in layers if is_loss(layers[-1]) else [*layers, layer("softmax_cross_entropy", name="loss")]:
        entry = {"kind": entry} if isinstance(entry, str) else dict(entry)
        if "name" not in entry:
            counts[entry["kind"]] = counts.get(entry["kind"], 0) + 1
            entry["name"] = f"{entry['kind']}_{counts[entry['kind']]}"
        if "inputs" not in entry:
            entry["inputs"] = [done[-1]["name"] if done else first_field] + (["label"] if is_loss(entry) else [])
        done.append(entry)
    return done


def pair(value):
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def as_toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items()) + " }"
    return repr(value)


# Starting numbers.


class Draws:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def near(self, middle, spread, shape):
        """Multiples of 1 / GRID, at most `spread` away from `middle`."""
        steps = max(1, round(spread * GRID))
        count = math.prod(shape)
        drawn = [middle + math.floor(self.random.random() * (2 * steps + 1) - steps) / GRID for _ in range(count)]
        assert all(abs(value) < 2 for value in drawn)
        return torch.tensor(drawn).reshape(shape)

    def whole(self, low, high, shape):
        """`low` to `high`."""
        count = math.prod(shape)
        drawn = [low + math.floor(self.random.random() * (high - low + 1)) for _ in range(count)]
        return torch.tensor(drawn, dtype=torch.int64).reshape(shape)


def numbers_of_an_image(draws, shape):
    return draws.near(0, 1.5, shape)


def labels_from(low, classes):
    """-1 as `low`: some of them are unknown."""
    return lambda draws, shape: draws.whole(low, classes - 1, shape)


class Field:
    """A part of a sample: `classes` of labels or tokens, None of numbers; draw(draws, shape) gives a batch of it."""

    def __init__(self, shape, classes=None, draw=None):
        self.shape, self.classes = tuple(shape), classes
        self.draw = draw or (numbers_of_an_image if classes is None else labels_from(0, classes))


# A model in PyTorch's words. Images are [rows, height, width, channels] here, [rows, channels, height, width] there.


def to_torch(image):
    return image.permute(0, 3, 1, 2)


def from_torch(image):
    return image.permute(0, 2, 3, 1)


class Model:
    """Computes a list of layers. Parameters are drawn when they are met; `margin`: how near a kink is too near."""

    def __init__(self, layers, draws, margin):
        self.layers, self.draws, self.margin = layers, draws, margin
        self.parameters, self.statistics = {}, {}  # statistics: their momentum

    def parameter(self, entry, name, shape, middle=0.0, spread=0.5, momentum=0):
        full = f"{entry['name']}.{name}"
        if full not in self.parameters:
            self.parameters[full] = self.draws.near(middle, spread, shape).requires_grad_(not momentum)
            if momentum:
                self.statistics[full] = momentum
        return self.parameters[full]

    def weight_and_bias(self, entry, shape):
        weight = self.parameter(entry, "weight", shape, spread=min(1.5, math.sqrt(3 / math.prod(shape[1:]))))
        return weight, self.parameter(entry, "bias", shape[:1]) if entry.get("bias", True) else None

    def check_largest(self, windows):
        """`windows` [..., n]: of each, the largest must stand out."""
        if windows.shape[-1] > 1:
            best = windows.topk(2, dim=-1).values
            if (best[..., 0] - best[..., 1]).min() < self.margin:
                raise AtKink

    def run(self, batch, training):
        """The sum of the losses, how many samples count in the last one, and how many of them are right."""
        values, losses = dict(batch), []
        for entry in self.layers:
            inputs = [values[name] for name in entry["inputs"]]
            if is_loss(entry):
                losses.append(getattr(self, entry["kind"])(entry, *inputs))
            else:
                values[entry["name"]] = getattr(self, entry["kind"])(entry, training, *inputs)
        return sum(loss[0] for loss in losses), losses[-1][1], losses[-1][2]

    def dense(self, entry, training, x):
        if entry.get("flatten", True):
            x = x.flatten(1)
        return F.linear(x, *self.weight_and_bias(entry, (entry["units"], x.shape[-1])))

    def conv2d(self, entry, training, x):
        groups = entry.get("groups", 1)
        kernel = pair(entry.get("kernel", 1))
        weight, bias = self.weight_and_bias(entry, (entry["filters"], x.shape[-1] // groups, *kernel))
        return from_torch(F.conv2d(to_torch(x), weight, bias, stride=pair(entry.get("stride", 1)), groups=groups,
                                   padding=pair(entry.get("padding", 0)), dilation=pair(entry.get("dilation", 1))))

    def max_pool(self, entry, training, x):
        kernel, padding = pair(entry.get("kernel", 2)), pair(entry.get("padding", 0))
        stride = pair(entry.get("stride", 0) or kernel)
        padded = F.pad(to_torch(x), (padding[1], padding[1], padding[0], padding[0]), value=-math.inf)
        windows = padded.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1]).flatten(-2)
        self.check_largest(windows)
        return from_torch(F.max_pool2d(to_torch(x), kernel, stride, padding))

    def average_pool(self, entry, training, x):
        kernel = pair(entry.get("kernel", 2))
        stride = pair(entry.get("stride", 0) or kernel)
        return from_torch(F.avg_pool2d(to_torch(x), kernel, stride, pair(entry.get("padding", 0)),
                                       count_include_pad=False))

    def global_average_pool(self, entry, training, x):
        return F.adaptive_avg_pool2d(to_torch(x), 1).flatten(1)

    def flatten(self, entry, training, x):
        return x.flatten(1)

    def transpose(self, entry, training, x):
        return x.permute(0, *(1 + extent for extent in entry["order"]))

    def relu(self, entry, training, x):
        if x.abs().min() < self.margin:
            raise AtKink
        return F.relu(x)

    def tanh(self, entry, training, x):
        return torch.tanh(x)

    def sigmoid(self, entry, training, x):
        return torch.sigmoid(x)

    def gelu(self, entry, training, x):
        return F.gelu(x)

    def add(self, entry, training, *inputs):
        return torch.stack(inputs).sum(0)

    def multiply(self, entry, training, *inputs):
        return torch.stack(inputs).prod(0)

    def concat(self, entry, training, *inputs):
        return torch.cat(inputs, dim=-1)

    def batch_norm(self, entry, training, x):
        channels = x.shape[-1:]
        scale = self.parameter(entry, "weight", channels, middle=1)
        shift = self.parameter(entry, "bias", channels)
        momentum = entry.get("momentum", 0.1)
        mean = self.parameter(entry, "running_mean", channels, momentum=momentum)
        variance = self.parameter(entry, "running_var", channels, middle=1, momentum=momentum)
        image = x.ndim == 4
        y = F.batch_norm(to_torch(x) if image else x, mean, variance, scale, shift, training=training,
                         momentum=momentum, eps=entry.get("epsilon", 1e-5))
        return from_torch(y) if image else y

    def layer_norm(self, entry, training, x):
        width = x.shape[-1:]
        scale = self.parameter(entry, "weight", width, middle=1)
        return F.layer_norm(x, width, scale, self.parameter(entry, "bias", width), eps=entry.get("epsilon", 1e-5))

    def l2_norm(self, entry, training, x):
        return self.parameter(entry, "scale", x.shape[-1:], middle=1) * F.normalize(x, dim=-1)

    def embedding(self, entry, training, tokens):
        table = self.parameter(entry, "weight", (entry["vocabulary"], entry["width"]), spread=1)
        return F.embedding(tokens.clamp(min=0), table) * (tokens >= 0).unsqueeze(-1)

    def position(self, entry, training, x):
        return x + self.parameter(entry, "weight", x.shape[1:])

    def attention(self, entry, training, x):
        def heads(part):  # [rows, length, width] to [rows, heads, length, part of the width]
            return part.unflatten(-1, (entry.get("heads", 1), -1)).transpose(1, 2)

        query, key, value = (heads(part) for part in x.chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=entry.get("causal", False))
        return y.transpose(1, 2).flatten(2)

    def softmax_cross_entropy(self, entry, x, labels):
        labels = labels.flatten()
        logits = x.reshape(len(labels), -1)
        counts = (labels >= 0) & (labels != entry.get("ignore", -1))
        labels = torch.where(counts, labels, -100)
        loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum",
                               label_smoothing=entry.get("smoothing", 0))
        return entry.get("weight", 1) * loss, int(counts.sum()), int((logits.argmax(1) == labels)[counts].sum())

    def smooth_l1(self, entry, x, targets):
        loss = F.smooth_l1_loss(x.flatten(1), targets.flatten(1), beta=entry.get("beta", 1), reduction="none")
        return entry.get("weight", 1) * loss.mean(1).sum(), len(x), 0

    def sigmoid_cross_entropy(self, entry, x, targets):
        logits, targets = x.flatten(1), targets.flatten(1)
        known = (targets >= 0).to(logits.dtype)
        loss = F.binary_cross_entropy_with_logits(logits, targets, weight=known, reduction="none")
        right = (((logits > 0) == (targets > 0.5)) | (known == 0)).all(1)
        counts = known.sum(1) > 0
        means = (loss.sum(1) / known.sum(1).clamp(min=1))
        return entry.get("weight", 1) * means.sum(), int(counts.sum()), int((right & counts).sum())


class LayerWise:
    """LARS (You, Gitman, Ginsburg 2017, algorithm 1) and LAMB (You et al. 2020, algorithm 2, phi the identity), which
    PyTorch does not have. As in the reference code of both, vectors are neither scaled nor decayed, and a tensor one of
    whose norms is 0 is not scaled."""

    def __init__(self, settings, parameters):
        self.settings, self.parameters, self.updates = settings, parameters, 0
        self.first = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: torch.zeros_like(value) for name, value in parameters.items()}

    def zero_grad(self):
        for value in self.parameters.values():
            value.grad = None

    @torch.no_grad()
    def step(self):
        self.updates += 1
        for name, weight in self.parameters.items():
            vector = weight.dim() < 2
            left_out = vector or any(fnmatch.fnmatch(name, p) for p in self.settings.get("no_decay", []))
            decay = 0 if left_out else self.settings.get("weight_decay", 0)
            if self.settings["rule"] == "lars":
                self.step_lars(name, weight, decay, vector)
            else:
                self.step_lamb(name, weight, decay, vector)

    def step_lars(self, name, weight, decay, vector):
        norm, of_gradient = weight.norm(), weight.grad.norm()
        ratio = 1
        if not vector and norm > 0 and of_gradient > 0:
            ratio = self.settings.get("trust", 0.001) * norm / (of_gradient + decay * norm)
        velocity = self.first[name]
        velocity.mul_(self.settings.get("momentum", 0.9))
        velocity.add_(self.settings["rate"] * ratio * (weight.grad + decay * weight))
        weight.sub_(velocity)

    def step_lamb(self, name, weight, decay, vector):
        beta1, beta2 = self.settings.get("beta1", 0.9), self.settings.get("beta2", 0.999)
        first, second = self.first[name], self.second[name]
        first.mul_(beta1).add_((1 - beta1) * weight.grad)
        second.mul_(beta2).add_((1 - beta2) * weight.grad ** 2)
        root = (second / (1 - beta2 ** self.updates)).sqrt()
        move = first / (1 - beta1 ** self.updates) / (root + self.settings.get("epsilon", 1e-8)) + decay * weight
        norm, of_move = weight.norm(), move.norm()
        ratio = norm / of_move if not vector and norm > 0 and of_move > 0 else 1
        weight.sub_(self.settings["rate"] * ratio * move)


def make_optimizer(settings, parameters):
    """`settings` as [optimizer] in app.toml; `parameters` by name, without running statistics."""
    left_out = [name for name in parameters if any(fnmatch.fnmatch(name, p) for p in settings.get("no_decay", []))]
    groups = [{"params": [parameters[name] for name in parameters if name not in left_out],
               "weight_decay": settings.get("weight_decay", 0)}]
    if left_out:
        groups.append({"params": [parameters[name] for name in left_out], "weight_decay": 0})
    rule, rate, momentum = settings["rule"], settings["rate"], settings.get("momentum", 0)
    betas = (settings.get("beta1", 0.9), settings.get("beta2", 0.999))
    epsilon = settings.get("epsilon", 1e-8)
    if rule in ("sgd", "momentum", "nesterov"):
        return torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=rule == "nesterov")
    if rule == "adam":
        return torch.optim.Adam(groups, lr=rate, betas=betas, eps=epsilon)
    if rule == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon)
    if rule == "adagrad":
        return torch.optim.Adagrad(groups, lr=rate, eps=epsilon)
    if rule in ("lars", "lamb"):
        return LayerWise(settings, parameters)
    assert rule == "rmsprop", rule
    return torch.optim.RMSprop(groups, lr=rate, alpha=settings.get("alpha", 0.99), eps=epsilon, momentum=momentum)


# Files.


def shortest(value, digits=12):
    """More digits than f32 holds, without the noise of the last bits of f64."""
    return f"{round(value, 14) + 0:.{digits}g}"


def numbers(tensor, indent, digits=12):
    """A flat array that begins in column `indent`, with as many numbers a line as fit."""
    lines, line = [], ""
    for text in [shortest(value, digits) for value in tensor.detach().flatten().tolist()]:
        if line and indent + len(line) + len(text) + 4 > COLUMNS:
            lines.append(line + ",")
            line = ""
        line += (", " if line else "") + text
    lines.append(line)
    return "[" + ("\n" + " " * (indent + 1)).join(lines) + "]"


class Case:
    """A model, its fields and rows, and how long which optimizer trains it, with its batches in turn."""

    def __init__(self, about, layers, fields, rows=4, optimizer=None, steps=0, batches=1, margin=0.01):
        self.about, self.layers, self.rows, self.margin = about, layers, rows, margin
        self.fields = fields
        self.optimizer, self.steps, self.batches = optimizer, steps, batches

    def text(self):
        for seed in range(1, MOST_SEEDS):
            try:
                return self.text_of(seed)
            except AtKink:
                pass
        raise AssertionError(f"{self.about}: no seed keeps away from kinks")

    def text_of(self, seed):
        draws = Draws(seed)
        model = Model(with_names_and_inputs(self.layers, next(iter(self.fields))), draws, self.margin)
        batches = [{name: field.draw(draws, (self.rows, *field.shape)) for name, field in self.fields.items()}
                   for _ in range(self.batches)]
        evaluated = model.run(batches[0], training=False)
        start = {name: value.detach().clone() for name, value in model.parameters.items()}
        stepped = model.run(batches[0], training=True)
        stepped[0].backward()
        gradients = {name: value.grad.clone() for name, value in model.parameters.items() if value.requires_grad}
        for name, momentum in model.statistics.items():  # a step moved them
            value = model.parameters[name]
            of_batch = start[name] + (value - start[name]) / momentum
            gradients[name] = -stepped[1] * of_batch  # what replicas give in place of a gradient
            value.copy_(start[name])
        losses = self.train(model, batches)
        return self.file(model, seed, batches, start, gradients, stepped, evaluated, losses)

    def train(self, model, batches):
        """The loss of each step, before its update, as a sum over the samples."""
        if self.optimizer is None:
            assert not model.statistics, "running statistics move in training alone"
            return []
        trained = {name: value for name, value in model.parameters.items() if value.requires_grad}
        optimizer = make_optimizer(self.optimizer, trained)
        losses = []
        model.margin = 0  # the first step alone keeps away from kinks
        for step in range(self.steps):
            optimizer.zero_grad()
            loss, samples, _ = model.run(batches[step % len(batches)], training=True)
            (loss / samples).backward()
            if "clip_norm" in self.optimizer:
                torch.nn.utils.clip_grad_norm_(trained.values(), self.optimizer["clip_norm"])
            optimizer.step()
            losses.append(loss.item())
        return losses

    def file(self, model, seed, batches, start, gradients, stepped, evaluated, losses):
        """The text of the file: JSON with one thing a line where it fits."""

        def sums(found):
            return f'{{"loss": {shortest(found[0].item())}, "samples": {found[1]}, "correct": {found[2]}}}'

        def listed(entries, indent):
            lines = [f"{indent}  {json.dumps(key)}: {value}" for key, value in entries]
            return "{\n" + ",\n".join(lines) + f"\n{indent}}}"

        def rows_of(values):
            return "[\n" + ",\n".join(f"    {json.dumps(value)}" for value in values) + "\n  ]"

        fields = [{"name": name, "shape": field.shape} for name, field in self.fields.items()]
        for entry, field in zip(fields, self.fields.values()):
            if field.classes is not None:
                entry["classes"] = field.classes
        parameters = []
        for name, value in model.parameters.items():
            parts = [("shape", json.dumps(list(value.shape))), ("start", numbers(start[name], 15)),
                     ("gradient", numbers(gradients[name], 18))]
            if losses:
                parts.append(("trained", numbers(value, 17, digits=10)))
            parameters.append((name, listed(parts, "    ")))
        entries = [("about", json.dumps(self.about)), ("torch", json.dumps(torch.__version__.split("+")[0])),
                   ("seed", seed), ("rows", self.rows), ("fields", rows_of(fields)),
                   ("layers", rows_of(as_toml(entry) for entry in self.layers)),
                   ("batches", "[" + ", ".join(listed([(name, numbers(value, 8 + len(name)))
                                                       for name, value in batch.items()], "  ")
                                               for batch in batches) + "]"),
                   ("step", sums(stepped)), ("evaluation", sums(evaluated))]
        if losses:
            entries.append(("training", listed([("optimizer", json.dumps(as_toml(self.optimizer))),
                                                ("losses", numbers(torch.tensor(losses), 14))], "  ")))
        entries.append(("parameters", listed(parameters, "  ")))
        return listed(entries, "") + "\n"


# The cases.

CLASSES = 3


def conv(filters, **attributes):
    return layer("conv2d", filters=filters, **attributes)


def dense(units, **attributes):
    return layer("dense", units=units, **attributes)


def of_image(about, *layers, shape=(5, 4, 2), **settings):
    """Layers behind a convolution, so that a gradient goes through them, and before a dense layer."""
    fields = {"image": Field(shape), "label": Field((), CLASSES)}
    return Case(about, [conv(3, name="before"), *layers, dense(CLASSES, name="after")], fields, **settings)


def of_sequence(about, *layers, length=5, width=3, before=6, **settings):
    """Layers behind a dense layer and before another one, at each place, with a label for each."""
    fields = {"image": Field((length, width)), "label": Field((length,), CLASSES)}
    before, after = dense(before, flatten=False, name="before"), dense(CLASSES, flatten=False, name="after")
    return Case(about, [before, *layers, after], fields, **settings)


def always(*values):
    """The same numbers of a batch whatever the seed."""
    return lambda draws, shape: torch.tensor(values).reshape(shape)


def of_logits(about, loss, labels):
    """A loss of what a dense layer makes of five numbers."""
    fields = {"image": Field((5,)), "label": Field((), CLASSES, always(*labels))}
    return Case(about, [dense(CLASSES), loss], fields, rows=len(labels))


def of_targets(about, loss, targets):
    """The same with rows of numbers as targets."""
    width = len(targets[0])
    fields = {"image": Field((5,)), "target": Field((width,), draw=always(*targets))}
    return Case(about, [dense(width), {**loss, "inputs": ["dense_1", "target"]}], fields, rows=len(targets))


def of_rule(about, steps=5, **optimizer):
    """Steps of an optimizer on two batches in turn."""
    fields = {"image": Field((4,)), "label": Field((), 3)}
    return Case(about, [dense(5), "tanh", dense(3)], fields, optimizer=optimizer, steps=steps, batches=2)


def gpt():
    """As models.cpp builds model.name = "gpt", but narrow and with two blocks."""
    width, vocabulary, length = 8, 9, 6
    layers = [layer("embedding", vocabulary=vocabulary, width=width), layer("position", name="stream_0")]
    for block in (1, 2):
        before, middle = f"stream_{block - 1}", f"middle_{block}"
        layers += [layer("layer_norm", name=f"attention_norm_{block}", inputs=[before]),
                   dense(3 * width, flatten=False), layer("attention", heads=2, causal=True),
                   dense(width, flatten=False, name=f"projection_{block}"),
                   layer("add", name=middle, inputs=[before, f"projection_{block}"]),
                   layer("layer_norm", name=f"mlp_norm_{block}", inputs=[middle]),
                   dense(2 * width, flatten=False), "gelu",
                   dense(width, flatten=False, name=f"contract_{block}"),
                   layer("add", name=f"stream_{block}", inputs=[middle, f"contract_{block}"])]
    layers += [layer("layer_norm", name="final_norm"), dense(vocabulary, flatten=False, name="logits")]
    fields = {"tokens": Field((length,), vocabulary), "label": Field((length,), vocabulary)}
    # A key's bias has no gradient but rounding, which a small epsilon would make a step of.
    return Case("A small GPT: a decoder of two blocks.", layers, fields, steps=4, batches=2, optimizer={
        "rule": "adamw", "rate": 0.01, "beta2": 0.95, "epsilon": 1e-4, "weight_decay": 0.1,
        "no_decay": ["*.bias", "*norm*.weight"], "clip_norm": 0.5})


def residual_network():
    layers = [conv(4, kernel=3, padding=1), "batch_norm", layer("relu", name="stem"),
              conv(4, kernel=3, padding=1), "batch_norm", "relu", conv(4, kernel=3, padding=1),
              layer("batch_norm", name="inner"), layer("add", inputs=["inner", "stem"]), layer("relu", name="block_1"),
              conv(6, kernel=3, stride=2, padding=1), "batch_norm", "relu", conv(6, kernel=3, padding=1),
              layer("batch_norm", name="halved"), conv(6, stride=2, inputs=["block_1"]),
              layer("batch_norm", name="shortcut"), layer("add", inputs=["halved", "shortcut"]), "relu",
              "global_average_pool", dense(3)]
    fields = {"image": Field((6, 6, 2)), "label": Field((), 3)}
    optimizer = {"rule": "nesterov", "rate": 0.05, "momentum": 0.9, "weight_decay": 0.01, "no_decay": ["*.bias"]}
    return Case("A small residual network with batch norm: a plain block, and one that halves the image.", layers,
                fields, optimizer=optimizer, steps=4, batches=2, margin=1e-4)


def cases():
    sgd = {"rule": "sgd", "rate": 0.1}
    return {
        # Layers.
        "dense": of_image("A dense layer of a whole image.", dense(5)),
        "dense_places": of_sequence("Dense layers at each place of a sequence, with the same weights."),
        "dense_no_bias": of_image("A dense layer without a bias.", dense(5, bias=False)),
        "conv2d": of_image("A convolution that keeps the image's size.", conv(3, kernel=3, padding=1)),
        "conv2d_stride": of_image("A convolution with two strides, and a kernel and padding of two sides.",
                                  conv(3, kernel=[3, 2], stride=[2, 3], padding=[1, 0])),
        "conv2d_dilation": of_image("A convolution with dilation, more along the height.",
                                    conv(3, kernel=[2, 3], padding=1, dilation=[3, 2])),
        "conv2d_groups": of_image("A convolution in three groups.", conv(6, kernel=2, groups=3)),
        "conv2d_depthwise": of_image("A depthwise convolution of stride 2.",
                                     conv(3, kernel=3, stride=2, padding=1, groups=3)),
        "conv2d_no_bias": of_image("A convolution without a bias.", conv(4, kernel=3, padding=1, bias=False)),
        "max_pool": of_image("Pools of 2 x 2; a row is left over.", "max_pool"),
        "max_pool_padding": of_image("Pools that overlap, with padding.",
                                     layer("max_pool", kernel=[3, 2], stride=[2, 1], padding=1)),
        "average_pool": of_image("Pools of 2 x 2; a row is left over.", "average_pool"),
        "average_pool_padding": of_image("Pools that overlap, with padding that does not count.",
                                         layer("average_pool", kernel=[3, 2], stride=[2, 1], padding=1)),
        "global_average_pool": of_image("The mean of each channel.", "global_average_pool"),
        "flatten": of_image("Flatten, in the order height, width, channels.", "flatten", shape=(3, 4, 2)),
        "transpose": of_image("The channels before height and width, which then a convolution takes for channels.",
                              layer("transpose", order=[2, 0, 1]), conv(2, kernel=2)),
        "relu": of_image("ReLU.", "relu", shape=(3, 2, 2)),
        "tanh": of_image("The hyperbolic tangent.", "tanh"),
        "sigmoid": of_image("The sigmoid.", "sigmoid"),
        "gelu": of_image("GELU by erf.", "gelu"),
        "add": of_image("A sum of three, one of them twice.", conv(3),
                        layer("add", inputs=["before", "conv2d_1", "before"])),
        "multiply": of_image("A product of three, one of them twice.", conv(3),
                             layer("multiply", inputs=["before", "conv2d_1", "before"])),
        "concat": of_image("Three tensors behind one another in their channels, one of them the image.", conv(4),
                           layer("concat", inputs=["before", "image", "conv2d_1"]), shape=(3, 3, 2)),
        "batch_norm": of_image("Batch norm of an image.", "batch_norm", optimizer=sgd, steps=2, batches=2),
        "batch_norm_channels": of_image("Batch norm of channels alone.", dense(4),
                                        layer("batch_norm", momentum=0.25, epsilon=0.01), optimizer=sgd, steps=2,
                                        shape=(3, 3, 2), batches=2, rows=6),
        "l2_norm": of_image("L2 norm over the channels, next to without epsilon, which PyTorch does not have.",
                            layer("l2_norm", epsilon=1e-20), shape=(4, 3, 2)),
        "layer_norm": of_sequence("Layer norm at each place of a sequence.", "layer_norm"),
        "layer_norm_image": of_image("Layer norm over the channels of an image.", layer("layer_norm", epsilon=0.1)),
        "embedding": Case("Vectors of tokens, some of which are below 0 and have none.",
                          [layer("embedding", vocabulary=7, width=4), dense(CLASSES, flatten=False)],
                          {"tokens": Field((5,), 7, labels_from(-1, 7)), "label": Field((5,), CLASSES)}),
        "position": of_sequence("A vector for each place.", "position"),
        "attention": of_sequence("One head that reads the whole sequence.", "attention", before=12),
        "attention_heads": of_sequence("Three heads that read the whole sequence.", layer("attention", heads=3),
                                       before=18),
        "attention_causal": of_sequence("Two heads that read what came before.",
                                        layer("attention", heads=2, causal=True), before=12),
        # Losses.
        "softmax_cross_entropy": of_logits("A weight, and a label below 0, which does not count.",
                                           layer("softmax_cross_entropy", weight=0.5), [0, 2, -1, 1, 2, 0]),
        "softmax_cross_entropy_smoothing": of_logits("Smoothed targets.", layer("softmax_cross_entropy", smoothing=0.3),
                                                     [0, 2, 0, 1, 2, 1]),
        "softmax_cross_entropy_ignore": of_logits("A class that does not count, and smoothed targets.",
                                                  layer("softmax_cross_entropy", smoothing=0.1, ignore=2),
                                                  [0, 2, -1, 1, 2, 0]),
        "softmax_cross_entropy_places": Case(
            "A label for each place, some of which do not count, and smoothed targets.",
            [dense(CLASSES, flatten=False), layer("softmax_cross_entropy", smoothing=0.2, ignore=1)],
            {"image": Field((3, 4)),
             "label": Field((3,), CLASSES, always([0, 1, 2], [-1, 0, 2], [1, -1, 1], [2, 2, 0]))}),
        "smooth_l1": of_targets("Distances below and above beta.", layer("smooth_l1", weight=2.0, beta=0.5),
                                [[-1.0, 0.0, 0.5], [0.25, 2.0, 0.0], [0.0, 0.5, -0.5], [1.0, 0.25, -2.0]]),
        "sigmoid_cross_entropy": of_targets("Unknown targets, below 0; in one sample all are.",
                                            layer("sigmoid_cross_entropy", weight=2.0),
                                            [[-1.0, 0.0, 0.25], [1.0, 1.0, 0.0], [-1.0, -1.0, -1.0], [0.5, 0.0, 1.0]]),
        "two_losses": Case("A weighted loss of an image drawn again beside a classifier.",
                           [dense(5, name="code"), layer("tanh", name="read"), dense(4, name="drawn"),
                            layer("smooth_l1", weight=0.5, inputs=["drawn", "image"]),
                            dense(CLASSES, name="classes", inputs=["read"]), layer("softmax_cross_entropy")],
                           {"image": Field((4,)), "label": Field((), CLASSES)}),
        # Rules.
        "rule_sgd": of_rule("Gradient descent.", rule="sgd", rate=0.25),
        "rule_sgd_decay": of_rule("Gradient descent with weight decay, but for biases.", rule="sgd", rate=0.25,
                                  weight_decay=0.1, no_decay=["*.bias"]),
        "rule_sgd_clip": of_rule("Gradient descent whose gradient is clipped.", rule="sgd", rate=0.25, clip_norm=0.25),
        "rule_momentum": of_rule("Momentum with weight decay.", rule="momentum", rate=0.1, momentum=0.75,
                                 weight_decay=0.05),
        "rule_nesterov": of_rule("Nesterov's momentum with weight decay.", rule="nesterov", rate=0.1, momentum=0.75,
                                 weight_decay=0.05),
        "rule_adam": of_rule("Adam with weight decay in the gradient.", rule="adam", rate=0.05, beta1=0.8, beta2=0.95,
                             weight_decay=0.05),
        "rule_adamw": of_rule("AdamW: weight decay beside the gradient.", rule="adamw", rate=0.05, weight_decay=0.1),
        "rule_adagrad": of_rule("Adagrad with weight decay.", rule="adagrad", rate=0.1, epsilon=1e-3,
                                weight_decay=0.05),
        "rule_rmsprop": of_rule("RMSprop.", rule="rmsprop", rate=0.02, alpha=0.9, epsilon=1e-3),
        "rule_rmsprop_momentum": of_rule("RMSprop with momentum and weight decay.", rule="rmsprop", rate=0.02,
                                         alpha=0.9, epsilon=1e-3, momentum=0.5, weight_decay=0.05),
        "rule_lars": of_rule("LARS: a rate for each tensor, by its norms.", rule="lars", rate=2.0, momentum=0.75,
                             trust=0.05, weight_decay=0.05),
        "rule_lamb": of_rule("LAMB: Adam with a rate for each tensor, by its norms.", rule="lamb", rate=0.05, beta1=0.8,
                             beta2=0.95, epsilon=1e-6, weight_decay=0.1, no_decay=["dense_2.*"]),
        # Networks.
        "net_mlp": Case("Three dense layers with ReLU.", [dense(12), "relu", dense(8), "relu", dense(CLASSES)],
                        {"image": Field((4, 4, 1)), "label": Field((), CLASSES)}, rows=8,
                        optimizer={"rule": "adam", "rate": 0.02, "epsilon": 1e-3}, steps=6, batches=2, margin=1e-3),
        "net_lenet": Case("Two convolutions with tanh and pools, then two dense layers.",
                          [conv(4, kernel=3), "tanh", "max_pool", conv(5, kernel=3), "tanh", "max_pool", dense(10),
                           "tanh", dense(CLASSES)],
                          {"image": Field((10, 10, 1)), "label": Field((), CLASSES)},
                          optimizer={"rule": "momentum", "rate": 0.05, "momentum": 0.9, "weight_decay": 0.001},
                          steps=4, batches=2, margin=1e-4),
        "net_residual": residual_network(),
        "net_gpt": gpt(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0], epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent, metavar="FOLDER",
                        help="where the files go; default: beside this script")
    parser.add_argument("--list", action="store_true", help="name the cases, and write nothing")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="the cases to write; default: all")
    given = parser.parse_args()
    known = cases()
    unknown = [name for name in given.cases if name not in known]
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(known)}")
    if given.list:
        for name, case in known.items():
            print(f"{name}: {case.about}")
        return
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        for name in given.cases or known:
            text = known[name].text()
            json.loads(text)
            (given.out / f"{name}.json").write_text(text)
    except OSError as error:
        print(f"make_golden.py: {error}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
