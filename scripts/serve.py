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

HOST = "127.0.0.1"


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves a folder under a path prefix; everything else is not found.

    Parameters
    ----------
    prefix
        Where the site lies, beginning and ending with a slash.
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

    def __init__(self, *args: object, prefix: str = "/", **options: object) -> None:
        self.prefix = prefix
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
        return super().send_head()

    def end_headers(self) -> None:
        """Have browsers ask again each time: a rebuilt site shows at once, an unchanged file costs a 304."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing per request."""


class SiteServer(ThreadingHTTPServer):
    """A threading server that does not mind browsers hanging up."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections (a cancelled download is one); show anything else."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def make_server(folder: Path, port: int = 0, prefix: str = "/") -> SiteServer:
    """Bind a server for a folder; port 0 takes a free one."""
    return SiteServer((HOST, port), partial(SiteHandler, directory=str(folder), prefix=prefix))


def address(server: SiteServer, prefix: str = "/") -> str:
    """The address at which a server's site is found."""
    return f"http://{HOST}:{server.server_address[1]}{prefix}"


@contextlib.contextmanager
def serving(folder: Path, prefix: str = "/") -> Iterator[str]:
    """Serve a folder in the background on a free port; gives its address."""
    server = make_server(folder, prefix=prefix)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield address(server, prefix)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
