#!/usr/bin/env python3
"""Draws what slow_network.py measured: validation accuracy over seconds and over the bytes that a rank sent, a line a
policy, as one SVG."""

import argparse
import html
import json
import math
import pathlib

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 470, 300, 52, 34, 44, 150
COLOURS = ["#1f6feb", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#0a7ea4", "#9a6700", "#6e7781", "#bf3989", "#116329"]


def read(folder):
    """A run: its policy and [(seconds, bytes, accuracy)]."""
    summary = json.loads((folder / "summary.json").read_text())
    lines = [e for e in json.loads((folder / "log").read_text()) if "validation/main/accuracy" in e]
    per_step = summary["sent_bytes_per_step"]
    return summary["file"], [(e["elapsed_time"], e["iteration"] * per_step, e["validation/main/accuracy"]) for e in lines]


class Axis:
    """A logarithmic axis from `low` to `high`, over pixels from `first` to `last`."""

    def __init__(self, values, first, last):
        self.low, self.high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self.high = max(self.high, self.low + 1)
        self.first, self.last = first, last

    def at(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self):
        return [10.0**e for e in range(self.low, self.high + 1)]


def amount(value):
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"


def panel(runs, column, left, title, name):
    reached = [point[2] for _, points in runs for point in points]
    low, high = min(0.9, min(reached)), min(1, math.ceil(max(reached) * 100) / 100)
    axis = Axis([point[column] for _, points in runs for point in points], left + LEFT, left + WIDTH - 10)

    def y(accuracy):
        return TOP + (1 - (accuracy - low) / (high - low)) * (HEIGHT - TOP - BOTTOM)

    out = [f'<text x="{left + LEFT}" y="20" class="title">{html.escape(title)}</text>']
    for hundredths in range(math.ceil(low * 50) * 2, math.floor(high * 100) + 1, 2):
        value = hundredths / 100
        out.append(f'<line x1="{left + LEFT}" x2="{left + WIDTH - 10}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>')
        out.append(f'<text x="{left + LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for tick in axis.ticks():
        out.append(f'<text x="{axis.at(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{name(tick)}</text>')
    for (_, points), colour in zip(runs, COLOURS):
        path = " ".join(f"{axis.at(p[column]):.1f},{y(p[2]):.1f}" for p in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        for p in points:
            out.append(f'<circle cx="{axis.at(p[column]):.1f}" cy="{y(p[2]):.1f}" r="2.2" fill="{colour}"/>')
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="of one turn: run/slow-network/100-0")
    parser.add_argument("to", type=pathlib.Path, help="the SVG")
    options = parser.parse_args()
    runs = [read(folder) for folder in sorted(options.folder.iterdir()) if (folder / "summary.json").exists()]
    if not runs:
        parser.error(f"{options.folder} has no runs of slow_network.py")
    width = 2 * WIDTH + GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">',
        "<style>text{font:12px sans-serif;fill:#24292f}.title{font-weight:600}.grid{stroke:#d0d7de}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.grid{stroke:#30363d}}</style>",
    ]
    out += panel(runs, 0, 0, "accuracy over time", lambda s: f"{s:g} s")
    out += panel(runs, 1, WIDTH, "accuracy over what a rank sent", amount)
    for i, ((policy, _), colour) in enumerate(zip(runs, COLOURS)):
        y = TOP + 12 + 20 * i
        out.append(f'<line x1="{2 * WIDTH + 8}" x2="{2 * WIDTH + 28}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{2 * WIDTH + 34}" y="{y}">{html.escape(policy)}</text>')
    options.to.write_text("\n".join(out + ["</svg>", ""]))


if __name__ == "__main__":
    main()
