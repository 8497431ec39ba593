"""A headless Chromium that a test drives over a pipe, with the DevTools protocol and without any other program."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps"),
)
_PATIENCE = 60  # seconds for one answer


class Browser:
    """One window with one page; the browser reads commands from its descriptor 3 and writes answers to 4."""

    def __init__(self, folder, *, size=(1300, 1000)):
        (command_end, self._to), (self._of, answer_end) = os.pipe(), os.pipe()
        words = [BROWSER, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        # bash gives the two ends their numbers, whatever numbers they have here
        line = f'exec "$@" 3<&{command_end} 4>&{answer_end}'
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", *words],
            pass_fds=(command_end, answer_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_end)
        os.close(answer_end)
        self._numbers, self._unread, self._session = itertools.count(1), b"", None
        self.events = []
        target = next(t for t in self._pages() if t["type"] == "page")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(timeout=20)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._to)
            os.close(self._of)

    def _pages(self):
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            found = self.call("Target.getTargets")["targetInfos"]
            if any(target["type"] == "page" for target in found):
                return found
            time.sleep(0.05)
        raise TimeoutError

    def call(self, method, **parameters):
        """Send a command and return its result; events that come before it are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _read(self):
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._of], [], [], max(0, until - time.monotonic()))
            more = os.read(self._of, 1 << 20) if ready else b""
            if not more:
                raise TimeoutError
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def resize(self, width, height, *, ratio=1):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=False
        )

    def open(self, path, *, until="document.readyState === 'complete'"):
        self.call("Page.navigate", url=path.as_uri())
        self.wait(until)

    def run(self, script):
        """Return the value of an expression, awaited, in the page."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition):
        until = time.monotonic() + _PATIENCE
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < until, f"never came true: {condition}"
            time.sleep(0.03)

    def settle(self):
        """Wait until what was asked for has been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, *, times=1):
        self.mouse("mouseMoved", x, y)
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=count)
        self.settle()

    def press(self, key, *, text=None):
        more = {} if text is None else {"text": text}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def picture(self, *, whole=True):
        """Return a PNG of the page."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    @property
    def complaints(self):
        """What the page wrote to the console, errors that it did not catch, and what the browser refused it."""
        kinds = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
        return [event for event in self.events if event["method"] in kinds]

    @property
    def requests(self):
        """All that the page asked for, but for itself and the pictures that it contains."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("file:", "data:image/png;base64,", "about:"))]
