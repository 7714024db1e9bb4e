"""Chromium without a screen, driven through its DevTools protocol: a few calls, no library of its own."""

import base64
import json
import shutil
import subprocess
import time
from itertools import count
from pathlib import Path

from websockets.sync.client import connect

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    *("--headless=new", "--remote-debugging-port=0", "--no-sandbox", "--no-first-run", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Backspace": ("Backspace", 8, "")}
ARROWS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


# whether a field is as wide as the hint that stands in it
SHOWS_HINT = """selector => {
  const field = document.querySelector(selector), style = getComputedStyle(field);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const inside = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return field.placeholder !== "" && pen.measureText(field.placeholder).width < inside;
}"""


class Browser:
    """A browser with a profile in `folder`; it ends with the `with` block."""

    def __init__(self, folder: Path) -> None:
        self._ids, self.events = count(1), []
        self._process = subprocess.Popen(
            [PROGRAM, *OPTIONS, f"--user-data-dir={folder}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        note, end = folder / "DevToolsActivePort", time.monotonic() + 60
        while not (note.is_file() and len(note.read_text().split()) == 2):
            assert self._process.poll() is None, "chromium has ended"
            assert time.monotonic() < end, "chromium does not start"
            time.sleep(0.05)
        port, path = note.read_text().split()
        self._socket = connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("Browser.close")
        self._socket.close()
        self._process.wait(timeout=30)

    def call(self, method: str, session: str = "", **params):
        """Ask the browser; its answer. What it tells meanwhile is kept in `events`."""
        number = next(self._ids)
        asked = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._socket.send(json.dumps(asked))
        while True:
            told = json.loads(self._socket.recv(timeout=60))
            if told.get("id") == number:
                assert "error" not in told, f"{method}: {told['error']}"
                return told["result"]
            self.events.append(told)

    def tab(self) -> "Tab":
        """A new tab with a store of its own, as another person's browser has."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        return Tab(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])


class Tab:
    """A tab: addresses, keys, clicks, and what stands in the page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params):
        """Ask the browser about this tab."""
        return self.browser.call(method, self.session, **params)

    def open(self, address: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=address)

    def value(self, script: str):
        """What a JavaScript expression gives in the page."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Wait until a JavaScript condition holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.value(f"Boolean({condition})"):
                    return
            except AssertionError:  # the page is just being loaded
                pass
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s: {condition}; {self.value('document.body.innerText')}")

    def press(self, key: str, modifiers: int = 0) -> None:
        """A key, by its name or its character; 2 for `modifiers` is Ctrl."""
        name, code, text = KEYS.get(key, (key, ARROWS.get(key, 0), key if len(key) == 1 else ""))
        own = {"key": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        if key in KEYS or key in ARROWS:
            own["code"] = name
        self.call("Input.dispatchKeyEvent", type="keyDown", **own, **({"text": text} if text and not modifiers else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **own)

    def type(self, text: str) -> None:
        """Text into the field that has the focus."""
        self.call("Input.insertText", text=text)

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of an element, in pixels."""
        script = (
            "(r => [r.x + r.width / 2, r.y + r.height / "
            f"2])(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        left, top = self.value(script)
        return left, top

    def mouse(self, kind: str, place: tuple[float, float]) -> None:
        """mousePressed, mouseMoved or mouseReleased at a place."""
        pressed = {"button": "left", "clickCount": 1, "buttons": int(kind != "mouseReleased")}
        self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], **pressed)

    def click(self, selector: str) -> None:
        """A click on an element."""
        place = self.middle(selector)
        self.mouse("mousePressed", place)
        self.mouse("mouseReleased", place)

    def screen(self, width: int, height: int, dark: bool = False) -> None:
        """A window of this size; below 600 pixels a phone's."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        """What is on the screen, as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
