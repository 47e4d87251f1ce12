#!/usr/bin/env python3
"""One step as it ran, drawn from its trace: step.py TRACE.json OUT.svg "TITLE"

    megatrain bench --shape llama-3.2-1b --home host --device-memory 6G --tokens-per-step 16384 --trace TRACE.json

Four lanes: copies to the device, compute, copies from it (gradients and write-backs), and updates on the host.  Nothing is moved or stretched by hand.
"""
import json, sys

WIDTH, LEFT, LANE, GAP, TOP = 880, 118, 26, 12, 34
LANES = [("copy-in", "copies in"), ("compute", "compute"), ("copy-out", "copies out"), ("updater", "Adam on the host")]
LANE_OF = {"write-back": "copy-out"}  # a stream of its own, the same direction
KINDS = ["forward", "backward", "update", "copy"]

trace, out, title = json.load(open(sys.argv[1])), sys.argv[2], sys.argv[3]
events = trace["traceEvents"]
names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}


def kind_of(lane, name):
    """What it is part of; None: waiting."""
    if name.startswith("wait") or name == "idle":
        return None
    if lane != "compute":
        return "update" if lane == "updater" else "copy"
    if "adam" in name or name in ("round_grad", "grad_norm"):
        return "update"
    return "backward" if any(word in name for word in ("_bwd", "_dx", "_dw")) else "forward"


spans = {lane: [] for lane, _ in LANES}
for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
    lane = names.get(e["tid"])
    lane = LANE_OF.get(lane, lane)
    kind = kind_of(lane, e["name"])
    if lane in spans and kind:
        spans[lane].append((e["ts"], e["ts"] + e["dur"], kind))
start = min(s[0] for lane in spans.values() for s in lane)
end = max(s[1] for lane in spans.values() for s in lane)
scale = (WIDTH - LEFT - 12) / (end - start)


def merged(row):
    """Neighbours of one kind, less than half a pixel apart, are one box."""
    boxes = []
    for a, b, kind in row:
        x, to = LEFT + (a - start) * scale, LEFT + (b - start) * scale
        if boxes and boxes[-1][2] == kind and x - boxes[-1][1] < 0.5:
            boxes[-1][1] = max(boxes[-1][1], to)
        else:
            boxes.append([x, to, kind])
    return boxes


height = TOP + len(LANES) * (LANE + GAP) + 30
lines = [
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12">',
    "<style>text{fill:#3c3c38}.forward{fill:#6aa9f4}.backward{fill:#2a62b8}.update{fill:#c2570c}.copy{fill:#12805c}.lane{fill:#ececea}"
    "@media(prefers-color-scheme:dark){text{fill:#c8c8c4}.lane{fill:#2b2b29}}</style>",
    f'<text x="{LEFT}" y="20" font-weight="600">{title}</text>',
]
for i, (lane, label) in enumerate(LANES):
    y = TOP + i * (LANE + GAP)
    lines.append(f'<text x="{LEFT - 8}" y="{y + LANE / 2 + 4:.0f}" text-anchor="end">{label}</text>')
    lines.append(f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 12}" height="{LANE}"/>')
    for x, to, kind in merged(spans[lane]):
        lines.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{max(to - x, 0.4):.1f}" height="{LANE}"/>')
y = TOP + len(LANES) * (LANE + GAP) + 10
step = 10 ** len(str(int((end - start) / 1000 / 3)))  # of the scale, in milliseconds
step = next(s for s in (step / 10, step / 5, step / 2, step) if (end - start) / 1000 / s < 9)
for k in range(int((end - start) / 1000 / step) + 1):
    x = LEFT + k * step * 1000 * scale
    lines.append(f'<text x="{x:.0f}" y="{y}" text-anchor="middle">{k * step:g} ms</text>')
x = LEFT
for kind in KINDS:
    lines.append(f'<rect class="{kind}" x="{x}" y="{y + 8}" width="10" height="10"/><text x="{x + 15}" y="{y + 17}">{kind}</text>')
    x += 95
open(out, "w").write("\n".join(lines + ["</svg>", ""]))
