#!/usr/bin/env python3
"""A terminal recording as one animated SVG, from the real output: record.py OUT.svg -- COMMAND ...   (needs pyte)

The command runs in a terminal of 80 columns; the screen is sampled as it changes, long waits are shortened, and each distinct screen
becomes a frame.  Nothing is typed or changed by hand.
"""
import html, os, pty, select, sys, time

import pyte

COLUMNS, ROWS, LONGEST_WAIT, HOLD_END, FRAMES = 80, 32, 1.0, 6.0, 60
out, command = sys.argv[1], sys.argv[sys.argv.index("--") + 1:]

screen, stream = pyte.Screen(COLUMNS, ROWS), None
stream = pyte.ByteStream(screen)
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS), LANG="C.UTF-8", LC_ALL="C.UTF-8")
    os.execvp(command[0], command)
import fcntl, struct, termios
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))


def line_of(row):
    """Runs of characters of one colour: (column, text, colour, bold)."""
    runs = []
    for x in range(COLUMNS):
        c = screen.buffer[row][x]
        key = (c.fg, c.bold)
        if runs and runs[-1][2:] == key:
            runs[-1] = (runs[-1][0], runs[-1][1] + c.data, *key)
        else:
            runs.append((x, c.data, *key))
    return tuple(r for r in ((x, t.rstrip() if i == len(runs) - 1 else t, fg, b) for i, (x, t, fg, b) in enumerate(runs)) if r[1].strip())


def picture():
    return tuple(line_of(row) for row in range(ROWS))


frames, last = [], time.time()  # (seconds shown, picture)
while True:
    ready, _, _ = select.select([fd], [], [], 0.1)
    if ready:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        stream.feed(data)
    now = time.time()
    if now - last > 0.4:
        p = picture()
        if not frames or frames[-1][1] != p:
            frames.append([min(now - last, LONGEST_WAIT), p])
            last = now
frames.append([HOLD_END, picture()])
if os.waitpid(pid, 0)[1]:
    sys.exit("the command failed")
if len(frames) > FRAMES:  # keep the first and the last few, and an even choice between
    step = (len(frames) - 12) / (FRAMES - 12)
    keep = sorted({*range(6), *(6 + int(i * step) for i in range(FRAMES - 12)), *range(len(frames) - 6, len(frames))})
    frames = [frames[i] for i in keep]

COLOURS = {"red": "#f28b82", "green": "#81c995", "brown": "#fdd663", "yellow": "#fdd663", "blue": "#8ab4f8", "magenta": "#d7aefb",
           "cyan": "#78d9ec", "white": "#e8eaed", "black": "#9aa0a6", "default": "#e8eaed"}
CW, LH, PAD = 8.4, 18, 14
width, height = COLUMNS * CW + 2 * PAD, ROWS * LH + 2 * PAD
total, at = sum(f[0] for f in frames), 0.0
css, body = [], []
for i, (shown, rows) in enumerate(frames):
    start, end = 100 * at / total, 100 * (at + shown) / total
    at += shown
    css.append(f"#f{i}{{animation:k{i} {total:.1f}s step-end infinite}}@keyframes k{i}{{0%{{visibility:hidden}}{start:.3f}%{{visibility:visible}}{end:.3f}%{{visibility:hidden}}}}")
    texts = []
    for y, runs in enumerate(rows):
        for x, text, colour, bold in runs:
            style = f' fill="{COLOURS.get(colour, "#" + colour if len(colour) == 6 else "#e8eaed")}"' if colour != "default" else ""
            heavy = ' font-weight="700"' if bold else ""
            texts.append(f'<text x="{PAD + x * CW:.1f}" y="{PAD + (y + 0.8) * LH:.1f}"{style}{heavy} textLength="{len(text) * CW:.1f}">{html.escape(text)}</text>')
    body.append(f'<g id="f{i}">{"".join(texts)}</g>')
svg = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{html.escape(" ".join(command))}">'
       f'<style>text{{font:14px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;white-space:pre;fill:#e8eaed}}g{{visibility:hidden}}'
       f'@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}#f{len(frames) - 1}{{visibility:visible}}}}{"".join(css)}</style>'
       f'<rect width="100%" height="100%" rx="8" fill="#202124"/>{"".join(body)}</svg>\n')
open(out, "w").write(svg)
print(f"{out}: {len(frames)} frames, {total:.0f} s, {len(svg) // 1024} KiB")
