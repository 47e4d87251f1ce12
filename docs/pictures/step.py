#!/usr/bin/env python3
"""Steps as they ran, drawn from their traces, one below the other on one scale of time: step.py OUT.svg TRACE.json "TITLE" [TRACE.json "TITLE"]...

    megatrain bench --shape llama-3.2-1b --home host --device-memory 6G --tokens-per-step 16384 --trace TRACE.json

Five lanes: copies to the device, compute, copies from it (gradients, kept activations), write-backs of state that was updated on the device, and updates
on the host.  A lane in which nothing happened is left out.  Nothing is moved or stretched by hand.
"""
import json, sys

WIDTH, LEFT, LANE, GAP, TITLE = 880, 118, 26, 12, 34
LANES = [("copy-in", "copies in"), ("compute", "compute"), ("copy-out", "copies out"), ("write-back", "write-backs"), ("updater", "Adam on the host")]
KINDS = ["forward", "backward", "update", "copy"]


def kind_of(lane, name):
    """What it is part of; None: waiting."""
    if name.startswith("wait") or name == "idle":
        return None
    if lane != "compute" or name in ("in", "out"):
        return "update" if lane == "updater" else "copy"
    if "adam" in name or name in ("round_grad", "grad_norm"):
        return "update"
    return "backward" if any(word in name for word in ("_bwd", "_dx", "_dw")) else "forward"


def read(path):
    """The spans of each lane, in microseconds since the first of them."""
    events = json.load(open(path))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    spans = {lane: [] for lane, _ in LANES}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        lane = names.get(e["tid"])
        kind = kind_of(lane, e["name"])
        if lane in spans and kind:
            spans[lane].append((e["ts"], e["ts"] + e["dur"], kind))
    start = min(s[0] for lane in spans.values() for s in lane)
    return {lane: [(a - start, b - start, kind) for a, b, kind in row] for lane, row in spans.items() if row}


def boxes(row, scale):
    """Neighbours of one kind, less than half a pixel apart, are one box."""
    out = []
    for a, b, kind in row:
        x, to = LEFT + a * scale, LEFT + b * scale
        if out and out[-1][2] == kind and x - out[-1][1] < 0.5:
            out[-1][1] = max(out[-1][1], to)
        else:
            out.append([x, to, kind])
    return out


def draw(lines, spans, title, y, scale):
    """One step from y downward; where it ends."""
    lines.append(f'<text x="{LEFT}" y="{y + 20}" font-weight="600">{title}</text>')
    y += TITLE
    for lane, label in LANES:
        if lane not in spans:
            continue
        lines.append(f'<text x="{LEFT - 8}" y="{y + LANE / 2 + 4:.0f}" text-anchor="end">{label}</text>')
        lines.append(f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 12}" height="{LANE}"/>')
        for x, to, kind in boxes(spans[lane], scale):
            lines.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{max(to - x, 0.4):.1f}" height="{LANE}"/>')
        y += LANE + GAP
    return y


def draw_scale(lines, end, y, scale):
    step = 10 ** len(str(int(end / 1000 / 3)))  # in milliseconds
    step = next(s for s in (step / 10, step / 5, step / 2, step) if end / 1000 / s < 9)
    for k in range(int(end / 1000 / step) + 1):
        lines.append(f'<text x="{LEFT + k * step * 1000 * scale:.0f}" y="{y}" text-anchor="middle">{k * step:g} ms</text>')


def draw_legend(lines, y):
    for i, kind in enumerate(KINDS):
        x = LEFT + 95 * i
        lines.append(f'<rect class="{kind}" x="{x}" y="{y}" width="10" height="10"/><text x="{x + 15}" y="{y + 9}">{kind}</text>')


out, steps = sys.argv[1], [(read(path), title) for path, title in zip(sys.argv[2::2], sys.argv[3::2])]
end = max(span[1] for spans, _ in steps for row in spans.values() for span in row)
scale = (WIDTH - LEFT - 12) / end
lines, y = [], 0
for spans, title in steps:
    y = draw(lines, spans, title, y, scale)
draw_scale(lines, end, y + 10, scale)
draw_legend(lines, y + 18)
height = y + 30
head = [
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12">',
    "<style>text{fill:#3c3c38}.forward{fill:#6aa9f4}.backward{fill:#2a62b8}.update{fill:#c2570c}.copy{fill:#12805c}.lane{fill:#ececea}"
    "@media(prefers-color-scheme:dark){text{fill:#c8c8c4}.lane{fill:#2b2b29}.backward{fill:#3f7bd6}.copy{fill:#2fb98a}}</style>",
]
open(out, "w").write("\n".join(head + lines + ["</svg>", ""]))
