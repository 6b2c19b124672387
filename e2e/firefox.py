"""A headless Firefox, driven by WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/) without geckodriver.

Playwright drives only a Firefox of its own; this is the one that people have.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from e2e.lab import PATIENCE_S
from scripts.vulkan import swiftshader_environment

#: WebGPU on any adapter, also where Firefox has it switched off or the driver on its blocklist.
WEBGPU = {"dom.webgpu.enabled": True, "gfx.webgpu.ignore-blocklist": True}
#: Requests of the browser's own.
QUIET = {
    "app.normandy.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
}


class Firefox:
    """One tab of a running Firefox.

    Parameters
    ----------
    socket
        The connection to its remote agent.

    Attributes
    ----------
    errors : list of str
        Errors of the console and exceptions that nobody caught, in the order in which they came.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self.command("session.new", capabilities={})
        self.command("session.subscribe", events=["log.entryAdded"])
        self._tab: str = self.command("browsingContext.getTree")["contexts"][0]["context"]

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Carry out a command of WebDriver BiDi; return its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"])
            if message.get("id") == number:
                assert message["type"] == "success", f"{method}: {message['message']}"
                result: dict[str, Any] = message["result"]
                return result

    def goto(self, url: str) -> None:
        """Open an address, and wait until it is loaded."""
        self.command("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """Call a JavaScript function with plain data; what it returns or resolves with is plain data too."""
        call = f"async () => JSON.stringify((await ({function})({json.dumps(argument)})) ?? null)"
        target = {"context": self._tab}
        answer = self.command(
            "script.callFunction", functionDeclaration=call, awaitPromise=True, target=target
        )
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"]["value"])

    def wait_for(self, selector: str) -> None:
        """Wait until an element is there."""
        self.evaluate(
            """async (selector) => {
                while (!document.querySelector(selector)) await new Promise((done) => setTimeout(done, 50));
            }""",
            selector,
        )

    def text(self, selector: str) -> str:
        """What an element shows."""
        shown: str = self.evaluate("(selector) => document.querySelector(selector).innerText", selector)
        return shown


@contextmanager
def launched(executable: Path, preferences: Mapping[str, object]) -> Iterator[Firefox]:
    """Start Firefox with a fresh profile and these preferences; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="py-attn-firefox-", ignore_cleanup_errors=True) as folder:
        profile = Path(folder)
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in (QUIET | preferences).items()]
        (profile / "user.js").write_text("\n".join(lines), encoding="utf-8")
        process = subprocess.Popen(
            [executable, "--headless", "--no-remote", "--profile", folder, "--remote-debugging-port", "0"],
            env=os.environ | swiftshader_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(address_of(process, profile), max_size=None, ping_interval=None) as socket:
                firefox = Firefox(socket)
                yield firefox
                firefox.command("browser.close")
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()


def address_of(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Where the remote agent listens, which it writes into the profile."""
    written = profile / "WebDriverBiDiServer.json"
    deadline = time.monotonic() + PATIENCE_S
    while not written.is_file() or not (text := written.read_text(encoding="utf-8")):
        assert process.poll() is None, f"Firefox ended with {process.returncode}"
        assert time.monotonic() < deadline, f"Firefox does not listen after {PATIENCE_S} s"
        time.sleep(0.05)
    server = json.loads(text)
    return f"ws://{server['ws_host']}:{server['ws_port']}/session"
