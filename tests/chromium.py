"""Chromium without a window, driven through a pipe by the standard library alone."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

PROGRAM: Final = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)

FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader", "--disable-gpu-watchdog", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--mute-audio",
)  # fmt: skip

TYPES: Final = {"Float32Array": np.float32, "Float64Array": np.float64, "Int32Array": np.int32,
                "Uint8Array": np.uint8, "Uint32Array": np.uint32}  # fmt: skip

ENCODE: Final = """
(value) => {
  const encode = (v) => {
    if (ArrayBuffer.isView(v)) {
      const bytes = new Uint8Array(v.buffer, v.byteOffset, v.byteLength);
      let text = "";
      for (const b of bytes) text += String.fromCharCode(b);
      return { typed: v.constructor.name, base64: btoa(text) };
    }
    if (typeof v === "number" && !Number.isFinite(v)) return { number: String(v) };
    if (Array.isArray(v)) return v.map(encode);
    if (v && typeof v === "object") {
      return { fields: Object.fromEntries(Object.entries(v).map(([k, e]) => [k, encode(e)])) };
    }
    return v ?? null;
  };
  return JSON.stringify(encode(value));
}
"""
"""What makes JSON of a value with arrays and numbers that are not finite."""


class PageError(Exception):
    """What a page threw."""


class Chromium:
    """A browser, and the files of a folder that it is served."""

    def __init__(self, profile: Path, folder: Path) -> None:
        assert PROGRAM, "there is no Chromium"
        self.folder = folder
        handler = functools.partial(_Quiet, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        there, commands = os.pipe()
        answers, back = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{there} 4>&{back}', "bash", PROGRAM, *FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(there, back), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(back)
        self._commands, self._answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self._sent, self._rest = 0, b""

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the DevTools protocol; events are passed over."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        for answer in self._read():
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]
        raise AssertionError("Chromium has ended")

    def _read(self) -> Iterator[dict[str, Any]]:
        while True:
            *whole, self._rest = self._rest.split(b"\0")
            for k, message in enumerate(whole):
                self._rest = b"\0".join([*whole[k + 1 :], self._rest])
                yield json.loads(message)
                break
            else:
                more = os.read(self._answers.fileno(), 2**20)
                if not more:
                    return
                self._rest += more

    @contextmanager
    def page(
        self, address: str, width: int = 1280, height: int = 900, before: str = ""
    ) -> Iterator[Page]:
        """A page of a window of this size; ``before`` runs there before its own programs do."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        found = Page(self, session)
        found.resize(width, height)
        found.call("Page.enable")
        found.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        found.open(address if "://" in address else f"{self.address}/{address}")
        try:
            yield found
        finally:
            self.call("Target.closeTarget", targetId=target)

    def close(self) -> None:
        """End the browser."""
        self._server.shutdown()
        self._server.server_close()
        try:
            self.call("Browser.close")
            self._process.wait(20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._commands.close()
        self._answers.close()


class Page:
    """A page that is open."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command for this page."""
        return self._browser.call(method, self._session, **parameters)

    def open(self, address: str) -> None:
        """Go to an address, and wait until all has been loaded."""
        found = self.call("Page.navigate", url=address)
        assert "errorText" not in found, found
        wait = "new Promise(r => document.readyState === 'complete' ? r() : onload = () => r())"
        self.run(f"await {wait}")

    def resize(self, width: int, height: int) -> None:
        """Give the page another size; up to 600 pixels wide it is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width <= 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def run(self, javascript: str, **values: Any) -> Any:
        """What statements return that may await; ``values`` are known by their names there.

        Raises:
            PageError: with the message of what they throw.
        """
        given = "".join(f"const {name} = {_javascript(v)};" for name, v in values.items())
        whole = f"(async () => {{ {given} {javascript} }})().then({ENCODE})"
        found = self.call(
            "Runtime.evaluate", expression=whole, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            thrown = found["exceptionDetails"]
            raise PageError(thrown.get("exception", {}).get("description") or thrown["text"])
        return _decoded(json.loads(found["result"]["value"]))

    def screenshot(self, path: Path) -> None:
        """Save what is to be seen, in all its length."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"
    }  # fmt: skip

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _javascript(value: Any) -> str:
    """A value as an expression."""
    if not isinstance(value, np.ndarray):
        return json.dumps(value)
    kind = next(name for name, dtype in TYPES.items() if value.dtype == dtype)
    text = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return f'new {kind}(Uint8Array.from(atob("{text}"), (c) => c.charCodeAt(0)).buffer)'


def _decoded(value: Any) -> Any:
    """What `ENCODE` made JSON of."""
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "number" in value:
        return float(value["number"].replace("Infinity", "inf"))
    if "typed" in value:
        return np.frombuffer(base64.b64decode(value["base64"]), TYPES[value["typed"]])
    return {name: _decoded(v) for name, v in value["fields"].items()}
