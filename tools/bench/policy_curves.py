#!/usr/bin/env python3
"""Draws the results of slow_network.py: validation accuracy over seconds and over the bytes that a rank sent, with a line
for each policy, as one SVG."""

import argparse
import html
import json
import math
import pathlib

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 470, 300, 52, 10, 34, 44, 150
COLOURS = ["#1f6feb", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#0a7ea4", "#9a6700", "#6e7781", "#bf3989", "#116329"]
STYLE = (
    "<style>text{font:12px sans-serif;fill:#24292f}.title{font-weight:600}.grid{stroke:#d0d7de}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.grid{stroke:#30363d}}</style>"
)


def read(folder):
    """A run: its policy and [(seconds, bytes, accuracy)]."""
    summary = json.loads((folder / "summary.json").read_text())
    lines = [e for e in json.loads((folder / "log").read_text()) if "validation/main/accuracy" in e]
    per_step = summary["sent_bytes_per_step"]
    return summary["file"], [(e["elapsed_time"], e["iteration"] * per_step, e["validation/main/accuracy"]) for e in lines]


def element(kind, text=None, **attributes):
    words = "".join(f' {name.rstrip("_").replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f"<{kind}{words}/>" if text is None else f"<{kind}{words}>{html.escape(text)}</{kind}>"


def amount(value):
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"


def panel(runs, column, left, title, name):
    """Accuracy over that column of the runs' points, on a logarithmic axis."""
    points = [point for _, line in runs for point in line]
    low, high = min(0.9, *(p[2] for p in points)), min(1, math.ceil(max(p[2] for p in points) * 100) / 100)
    first = math.floor(math.log10(min(p[column] for p in points)))
    last = max(first + 1, math.ceil(math.log10(max(p[column] for p in points))))
    begin, end = left + LEFT, left + WIDTH - RIGHT

    def x(value):
        return round(begin + (math.log10(value) - first) / (last - first) * (end - begin), 1)

    def y(accuracy):
        return round(TOP + (1 - (accuracy - low) / (high - low)) * (HEIGHT - TOP - BOTTOM), 1)

    yield element("text", title, x=begin, y=20, class_="title")
    for value in (hundredths / 100 for hundredths in range(math.ceil(low * 50) * 2, math.floor(high * 100) + 1, 2)):
        yield element("line", x1=begin, x2=end, y1=y(value), y2=y(value), class_="grid")
        yield element("text", f"{value:.2f}", x=begin - 6, y=y(value) + 4, text_anchor="end")
    for tick in (10.0**e for e in range(first, last + 1)):
        yield element("text", name(tick), x=x(tick), y=HEIGHT - BOTTOM + 18, text_anchor="middle")
    for (_, line), colour in zip(runs, COLOURS):
        path = " ".join(f"{x(p[column])},{y(p[2])}" for p in line)
        yield element("polyline", points=path, fill="none", stroke=colour, stroke_width=1.8)
        for p in line:
            yield element("circle", cx=x(p[column]), cy=y(p[2]), r=2.2, fill=colour)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="the folder of one turn: run/slow-network/100-0")
    parser.add_argument("to", type=pathlib.Path, help="the SVG")
    options = parser.parse_args()
    runs = [read(folder) for folder in sorted(options.folder.iterdir()) if (folder / "summary.json").exists()]
    if not runs:
        parser.error(f"{options.folder} has no runs of slow_network.py")
    width, left = 2 * WIDTH + GAP, 2 * WIDTH + 8
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">', STYLE]
    out += panel(runs, 0, 0, "accuracy over time", lambda s: f"{s:g} s")
    out += panel(runs, 1, WIDTH, "accuracy over what a rank sent", amount)
    for y, (policy, _), colour in zip(range(TOP + 12, HEIGHT, 20), runs, COLOURS):
        out.append(element("line", x1=left, x2=left + 20, y1=y - 4, y2=y - 4, stroke=colour, stroke_width=2))
        out.append(element("text", policy, x=left + 26, y=y))
    options.to.write_text("\n".join([*out, "</svg>", ""]))


if __name__ == "__main__":
    main()
