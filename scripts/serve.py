"""A small static server for the built site, on the loopback interface; the end-to-end tests use it too."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"

#: A Content-Security-Policy under which the whole site works; docs/hosting.md says what each part is for.
POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; base-uri 'none'; form-action 'none'"


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves a folder under a path prefix, and answers 404 for every other path.

    Parameters
    ----------
    prefix
        The site's path, beginning and ending with a slash.
    policy
        The Content-Security-Policy that is sent with every file, "" for none.
    compressed
        Send the compressed copies that lie beside the files, to whom takes them. Over the loopback
        interface they save nothing, so that it is off unless asked for.
    """

    protocol_version = "HTTP/1.1"
    extensions_map = {  # noqa: RUF012 - declared so by the base class; not left to the system's MIME tables
        "": "application/octet-stream",
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".ico": "image/x-icon",
        ".js": "text/javascript; charset=utf-8",
        ".json": "application/json",
        ".map": "application/json",
        ".md": "text/markdown; charset=utf-8",
        ".mjs": "text/javascript; charset=utf-8",
        ".png": "image/png",
        ".svg": "image/svg+xml",
        ".txt": "text/plain; charset=utf-8",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
        ".zip": "application/zip",
    }

    ENCODINGS = (("br", ".br"), ("gzip", ".gz"))

    def __init__(
        self,
        *args: object,
        prefix: str = "/",
        compressed: bool = False,
        policy: str = "",
        **options: object,
    ) -> None:
        self.prefix = prefix
        self.policy = policy
        self.compressed = compressed
        self.encoding: tuple[str, str] | None = None
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def send_head(self):  # type: ignore[no-untyped-def]
        """Answer within the prefix only."""
        if not self.path.startswith(self.prefix):
            if f"{self.path}/" == self.prefix:
                self.send_response(HTTPStatus.MOVED_PERMANENTLY)
                self.send_header("Location", self.prefix)
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.path = "/" + self.path.removeprefix(self.prefix)
        self.encoding = self._encoding()
        if self.encoding:
            self.path = self.path.split("?")[0] + self.encoding[1]
        return super().send_head()

    def _encoding(self) -> tuple[str, str] | None:
        """The name and suffix of the best compressed copy that exists and that the browser accepts."""
        if not self.compressed:
            return None
        taken = {part.split(";")[0].strip() for part in self.headers.get("Accept-Encoding", "").split(",")}
        original = self.translate_path(self.path)
        for name, suffix in self.ENCODINGS:
            if name in taken and Path(original + suffix).is_file():
                return name, suffix
        return None

    def guess_type(self, path: object) -> str:
        """The type of the requested file, also where its compressed copy is sent."""
        name = str(path)
        return super().guess_type(name.removesuffix(self.encoding[1]) if self.encoding else name)

    def end_headers(self) -> None:
        """Have browsers revalidate every file: a rebuilt site shows at once, an unchanged file gets a 304."""
        self.send_header("Cache-Control", "no-cache")
        if self.policy:
            self.send_header("Content-Security-Policy", self.policy)
        if self.compressed:
            self.send_header("Vary", "Accept-Encoding")
        if self.encoding:
            self.send_header("Content-Encoding", self.encoding[0])
            self.encoding = None
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


class SiteServer(ThreadingHTTPServer):
    """A threading server that ignores closed connections."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections (a cancelled download is one); show anything else."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def make_server(folder: Path, port: int = 0, prefix: str = "/", **options: Any) -> SiteServer:
    """Bind a server for a folder; port 0 takes a free one, and the options are those of `SiteHandler`."""
    handler = partial(SiteHandler, directory=str(folder), prefix=prefix, **options)
    return SiteServer((HOST, port), handler)


def address(server: SiteServer, prefix: str = "/") -> str:
    """The address of the server's site."""
    return f"http://{HOST}:{server.server_address[1]}{prefix}"


@contextlib.contextmanager
def serving(folder: Path, prefix: str = "/", **options: Any) -> Iterator[str]:
    """Serve a folder in the background on a free port; yields its address. Options as for `make_server`."""
    server = make_server(folder, prefix=prefix, **options)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield address(server, prefix)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
