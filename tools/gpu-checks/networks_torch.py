#!/usr/bin/env python3
"""Steps of the networks of `rtbench gpu` on PyTorch, for comparison: a JSON line for each figure.

  networks_torch.py [--case mlp,lenet,...] [--dtype f32,bf16] [--mode eager,graph,compile] [--batch N] [--device cuda]

A step is forward, loss, backward and update on one batch that lies in the device's memory, at most --repeats steps without a
wait of the host. eager: call by call. graph: the whole step as one CUDA graph. compile: torch.compile of the network. The
settings are the fastest ones that we know: channels-last images, cuDNN's trials, fused optimizers, fused attention; f32
without TF32, as rtbench has it; bf16 under autocast. The learning rate is 0. Needs torch. Exit codes: 0 done, 3 no torch, or
no GPU that it can use; what cannot be measured is a line on stderr.
"""
import argparse
import json
import sys
import time

CASES = ("mlp", "lenet", "cifar", "resnet20", "gpt", "resnet50")
BATCH = {"mlp": 100, "lenet": 64, "cifar": 64, "resnet20": 64, "gpt": 8, "resnet50": 4}
PLACES, BYTES = 256, 256  # of the GPT


def make_mlp(nn):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))


def make_lenet(nn):
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10))


def make_convnet(nn):
    layers, channels = [], 3
    for _ in range(2):
        for _ in range(2):
            layers += [nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU()]
            channels = 64
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 128),
                         nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))


def make_resnet(nn, large, bottleneck, filters, blocks, classes):
    def convolve(inputs, outputs, kernel, stride):
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    class Block(nn.Module):
        def __init__(self, inputs, inner, outputs, stride):
            super().__init__()
            if bottleneck:
                parts = [*convolve(inputs, inner, 1, 1), nn.ReLU(), *convolve(inner, inner, 3, stride), nn.ReLU(),
                         *convolve(inner, outputs, 1, 1)]
            else:
                parts = [*convolve(inputs, inner, 3, stride), nn.ReLU(), *convolve(inner, inner, 3, 1)]
            self.made = nn.Sequential(*parts)
            changes = stride != 1 or inputs != outputs
            self.shortcut = nn.Sequential(*convolve(inputs, outputs, 1, stride)) if changes else nn.Identity()

        def forward(self, x):
            return nn.functional.relu(self.made(x) + self.shortcut(x))

    layers = [*convolve(3, filters, 7 if large else 3, 2 if large else 1), nn.ReLU()]
    if large:
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    channels = filters
    for stage, count in enumerate(blocks):
        inner = filters << stage
        for block in range(count):
            outputs = 4 * inner if bottleneck else inner
            layers.append(Block(channels, inner, outputs, 2 if stage > 0 and block == 0 else 1))
            channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def make_gpt(torch, vocabulary=BYTES, length=PLACES, width=384, heads=6, depth=6):
    """The model of apps/text/gpt.toml, with weights that begin as its weights do."""
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query_key_value, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            rows, places, _ = x.shape
            cut = self.query_key_value(self.attention_norm(x)).view(rows, places, 3, heads, width // heads)
            query, key, value = cut.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.projection(mixed.transpose(1, 2).reshape(rows, places, width))
            return x + self.contract(functional.gelu(self.expand(self.mlp_norm(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.position = nn.Parameter(0.02 * torch.randn(length, width))
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
            self.final_norm, self.logits = nn.LayerNorm(width), nn.Linear(width, vocabulary)
            nn.init.normal_(self.embedding.weight, std=0.02)
            for module in self.modules():
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=module.in_features**-0.5)
                    nn.init.zeros_(module.bias)

        def forward(self, tokens):
            return self.logits(self.final_norm(self.blocks(self.embedding(tokens) + self.position)))

    return Gpt()


def make_network(torch, case):
    nn = torch.nn
    if case == "gpt":
        return make_gpt(torch)
    if case == "resnet20":
        return make_resnet(nn, False, False, 16, (3, 3, 3), 10)
    if case == "resnet50":
        return make_resnet(nn, True, True, 64, (3, 4, 6, 3), 1000)
    return {"mlp": make_mlp, "lenet": make_lenet, "cifar": make_convnet}[case](nn)


def make_optimizer(torch, case, network, on_gpu):
    """With the rule of the case in tools/bench/cases.cpp."""
    of, fused = list(network.parameters()), dict(fused=True)
    captured = dict(capturable=True) if on_gpu else {}
    if case == "mlp":
        return torch.optim.Adam(of, lr=0.0, **fused, **captured)
    if case == "gpt":
        return torch.optim.AdamW(of, lr=0.0, weight_decay=0.01, **fused, **captured)
    return torch.optim.SGD(of, lr=0.0, momentum=0.0 if case == "lenet" else 0.9, **fused)


def make_batch(torch, case, rows, device):
    if case == "gpt":
        text = torch.randint(0, BYTES, (rows, PLACES + 1), device=device)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()
    side, channels, classes = {"mlp": (28, 1, 10), "lenet": (28, 1, 10), "resnet50": (224, 3, 1000)}.get(case, (32, 3, 10))
    images = torch.randn(rows, channels, side, side, device=device).to(memory_format=torch.channels_last)
    return images, torch.randint(0, classes, (rows,), device=device)


class Step:
    """A network with its optimizer and one batch; called, it takes a step."""

    def __init__(self, torch, case, dtype, rows, device, compiled):
        self.torch, self.device, self.dtype = torch, device, dtype
        self.network = make_network(torch, case).to(device)
        if case not in ("mlp", "gpt"):
            self.network = self.network.to(memory_format=torch.channels_last)
        self.optimizer = make_optimizer(torch, case, self.network, device == "cuda")
        self.batch, self.labels = make_batch(torch, case, rows, device)
        self.run = torch.compile(self.network) if compiled else self.network

    def __call__(self):
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        # Without a cache of the weights in bf16: what was recorded would read one that is freed.
        with torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == "bf16", cache_enabled=False):
            made = self.run(self.batch)
        loss = torch.nn.functional.cross_entropy(made.float().flatten(0, -2), self.labels.flatten())
        loss.backward()
        self.optimizer.step()
        return loss


def recorded(torch, step):
    """The step as one CUDA graph, as PyTorch's notes on CUDA describe it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def finish(torch, device):
    if device == "cuda":
        torch.cuda.synchronize()


def measure(torch, what, case, dtype, mode):
    rows = what.batch or BATCH[case]
    step = Step(torch, case, dtype, rows, what.device, mode == "compile")
    run = recorded(torch, step) if mode == "graph" else step
    for _ in range(3):
        run()
    values = []
    for turn in range(what.rounds + 1):
        finish(torch, what.device)
        begun = time.perf_counter()
        for _ in range(what.repeats):
            run()
        finish(torch, what.device)
        if turn > 0:
            values.append(round(1e6 * (time.perf_counter() - begun) / what.repeats, 3))
    name = {"eager": "torch eager", "graph": "torch CUDA graph", "compile": "torch.compile"}[mode]
    print(json.dumps(dict(bench="gpu", impl=name, case=f"step of {case} {dtype}, batch {rows}", unit="us", v=values),
                     separators=(",", ":")), flush=True)
    parameters = sum(p.numel() for p in step.network.parameters())
    print(f"networks_torch: {case} {dtype} {mode}: {parameters} parameters, loss {step().item():.4f}", file=sys.stderr)


def parse():
    def names(of):
        def parsed(text):
            found = text.split(",")
            if not set(found) <= set(of):
                raise argparse.ArgumentTypeError(f"{text}: give some of {','.join(of)}")
            return found
        return parsed

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=names(CASES), default=list(CASES[:-1]), help=f"of {','.join(CASES)}")
    parser.add_argument("--dtype", type=names(("f32", "bf16")), default=["f32", "bf16"])
    parser.add_argument("--mode", type=names(("eager", "graph", "compile")), default=["eager", "graph", "compile"])
    parser.add_argument("--batch", type=int, default=0, help="samples of a step; 0: as many as rtbench takes")
    parser.add_argument("--rounds", type=int, default=5, help="turns, each a value")
    parser.add_argument("--repeats", type=int, default=50, help="steps of a turn")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: without graph, to try the script")
    return parser.parse_args()


def main():
    what = parse()
    try:
        import torch
    except ImportError as error:
        print(f"networks_torch: error: there is no PyTorch ({error})", file=sys.stderr)
        return 3
    if what.device == "cuda" and not torch.cuda.is_available():
        print(f"networks_torch: error: PyTorch {torch.__version__} finds no GPU that it can use", file=sys.stderr)
        return 3
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # rtbench's f32 is without TF32, too
    torch.manual_seed(1)
    print(f"networks_torch: PyTorch {torch.__version__}, {torch.cuda.get_device_name() if what.device == 'cuda' else 'cpu'}",
          file=sys.stderr)
    for mode in what.mode:  # compiling takes longest and comes last
        for case in what.case:
            for dtype in what.dtype:
                if mode == "graph" and what.device == "cpu":
                    continue
                try:
                    measure(torch, what, case, dtype, mode)
                except Exception as error:  # what one of them cannot do must not hide the others' figures
                    print(f"networks_torch: {case} {dtype} {mode} was not measured: {str(error).splitlines()[0]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
