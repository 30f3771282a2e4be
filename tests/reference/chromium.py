"""Chromium without a window, driven over the pipe that its DevTools protocol speaks: no library, no socket."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# it reads commands from descriptor 3 and writes answers to 4
_ON_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60.0  # seconds until a page that does not answer is given up
# what a page answers while another takes its place
_LEFT = ("Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context with specified id")


class LeftPageError(RuntimeError):
    """A page was left before it had answered."""


class Page:
    """A page of a browser that reads commands from one pipe and answers on another."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._number, self._read, self._session = commands, answers, 0, b"", ""
        self.said: list[str] = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            if not select.select([self._answers], [], [], _PATIENCE)[0]:
                raise TimeoutError(f"Chromium does not answer; {self.said}")
            self._read += os.read(self._answers, 1 << 20) or self._ended()
        line, _, self._read = self._read.partition(b"\0")
        return json.loads(line)

    def _ended(self) -> bytes:
        raise EOFError("Chromium has ended")

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0")
        while True:
            answer = self._message()
            told = answer.get("params", {})
            if answer.get("method") == "Runtime.exceptionThrown" or told.get("entry", {}).get("level") == "error":
                self.said.append(json.dumps(told))
            if answer.get("id") == self._number:
                if answer.get("error", {}).get("message", "").startswith(_LEFT):
                    raise LeftPageError(f"{method}: {answer['error']}")
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, address: str) -> None:
        """Go to an address and wait until its scripts have run."""
        self._send("Page.navigate", url="about:blank")
        self._send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def wait(self, condition: str) -> None:
        """Until an expression is true; a page that is left meanwhile has not made it true."""
        end = time.monotonic() + _PATIENCE
        while not self._holds(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {condition}; {self.said}")
            time.sleep(0.02)

    def _holds(self, condition: str) -> bool:
        try:
            return bool(self.run(condition))
        except LeftPageError:
            return False

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        result = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """What an element says."""
        return str(self.run(f"document.querySelector({selector!r}).innerText"))

    def move(self, x: float, y: float) -> None:
        """Point somewhere."""
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """Click somewhere."""
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press a key by its name, such as Tab, Enter or ArrowDown."""
        code = {"Tab": 9, "Enter": 13, "End": 35, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and what colours the user prefers."""
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._send("Emulation.setEmulatedMedia", features=features)


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A page of a new browser with an empty profile."""
    assert CHROMIUM is not None
    theirs, commands = os.pipe()
    answers, to_us = os.pipe()
    command = [sys.executable, "-c", _ON_PIPES, str(theirs), str(to_us), CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        command, pass_fds=(theirs, to_us), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs)
    os.close(to_us)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)
        os.close(answers)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
