#!/usr/bin/env python3
"""The dashboard in a real browser, while a run goes on: python3 tests/real/dashboard.py build/megatrain OUT_DIR

Needs chromium; talks to it through its debugging pipe, so no driver.  Trains the demo for a while, and checks that the page loads
without a console error, draws its charts, follows the run, fits 400 and 1600 pixels in light and dark, and that the report of two
runs lays them over each other.  Screenshots are left in OUT_DIR to be looked at.
"""
import base64, json, os, re, subprocess, sys, time

program, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
os.makedirs(out, exist_ok=True)
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Browser:
    def __init__(self):
        to_child, self.to = os.pipe()
        self.back, from_child = os.pipe()
        os.set_inheritable(to_child, True)
        os.set_inheritable(from_child, True)
        self.process = subprocess.Popen(
            ["sh", "-c", f"exec chromium --headless --no-sandbox --disable-gpu --remote-debugging-pipe 3<&{to_child} 4>&{from_child}"],
            pass_fds=(to_child, from_child), stderr=subprocess.DEVNULL)
        self.number, self.buffer, self.problems = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            self.buffer += os.read(self.back, 1 << 16)
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.number += 1
        ask = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            ask["sessionId"] = self.session
        os.write(self.to, json.dumps(ask).encode() + b"\0")
        while True:
            got = self.message()
            if got.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                self.problems.append(json.dumps(got["params"])[:300])
            if got.get("id") == self.number:
                assert "error" not in got, (method, got)
                return got["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)
        wait_for(lambda: self.value("document.readyState") == "complete", "the page to load")

    def screen(self, width, scheme, name):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        time.sleep(0.5)
        assert self.value("document.documentElement.scrollWidth <= innerWidth"), f"{name}: the page is wider than {width} pixels"
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        open(os.path.join(out, name + ".png"), "wb").write(base64.b64decode(shot))


def wait_for(condition, what, seconds=30):
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return
        time.sleep(0.2)
    raise SystemExit(f"waited {seconds} s for {what}")


def train(name, *more):
    directory = os.path.join(out, name)
    return directory, subprocess.Popen([program, "train", "--config", "configs/demo.yaml", "--output-dir", directory, "--overwrite",
                                        "--device", "cpu", *more], cwd=root, stdout=subprocess.PIPE, text=True)


DRAWN = "document.querySelectorAll('#charts svg path').length"
STEP = "Number((document.getElementById('progress-text').textContent.match(/step (\\d+)/) || [0, 0])[1])"

run, process = train("run-a", "--num-steps", "120", "--dashboard", "--tensorboard")
url = None
while not url:
    line = process.stdout.readline()
    assert line, "the run ended before it named its dashboard"
    found = re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]+/", line)
    url = found and found.group(0)
browser = Browser()
browser.open(url)
wait_for(lambda: browser.value(STEP) > 5, "the first steps")
first = browser.value(STEP)
wait_for(lambda: browser.value(STEP) > first, "the page to follow the run")
assert browser.value(DRAWN) >= 6, "charts are missing"
assert browser.value("document.getElementById('status').textContent") == "live"
for width in (400, 1600):
    for scheme in ("light", "dark"):
        browser.screen(width, scheme, f"live-{width}-{scheme}")
browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=250, y=420)
process.stdout.read()
assert process.wait() == 0
wait_for(lambda: "ended" in browser.value("document.getElementById('status').textContent"), "the page to see the end")
problems = [p for p in browser.problems if "ERR_CONNECTION_REFUSED" not in p]  # of asking a run that has ended
assert not problems, problems
browser.open("about:blank")
browser.problems = []

other, process = train("run-b", "--num-steps", "60", "--learning-rate", "3e-4")
process.stdout.read()
assert process.wait() == 0
browser.open("file://" + os.path.join(run, "report.html"))
browser.screen(1600, "light", "report")
subprocess.check_call([program, "report", run, other, "--out", os.path.join(out, "both.html")])
browser.open("file://" + os.path.join(out, "both.html"))
assert browser.value(DRAWN) >= 12, "two runs are not both drawn"
browser.screen(1600, "dark", "both")
assert not browser.problems, browser.problems
browser.process.kill()

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(os.path.join(run, "tensorboard")).Reload()
    lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
    expected = {m["step"]: m["loss"] for m in lines if "loss" in m}
    got = {e.step: e.value for e in events.Scalars("train/loss")}
    assert got.keys() == expected.keys() and all(abs(got[s] - expected[s]) < 1e-5 * abs(expected[s]) for s in got)
    print(f"tensorboard reads the same {len(got)} losses")
except ImportError:
    print("tensorboard is not installed: its files were not read")
print(f"the dashboard works; look at the pictures in {out}")
