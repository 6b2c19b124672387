"""Builds the site if something changed and serves it until Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.build import build
from scripts.common import Failure, run_main, say
from scripts.serve import SiteServer, address, make_server

DEFAULT_PORT = 8000


def open_server(folder: Path) -> SiteServer:
    """Bind $PORT, which must be free; without it 8000, or any free port when that is taken."""
    given = os.environ.get("PORT")
    if given is not None:
        if not given.isdecimal() or int(given) > 65535:
            raise Failure(f"PORT={given} is not a port number.")
        try:
            return make_server(folder, int(given))
        except OSError as error:
            raise Failure(
                f"port {given} cannot be used ({error.strerror}); choose another with PORT."
            ) from None
    try:
        return make_server(folder, DEFAULT_PORT)
    except OSError:
        return make_server(folder)


def main() -> None:
    """Build, bind, serve."""
    folder = build()
    with open_server(folder) as server:
        say(f"open {address(server)} (Ctrl-C stops)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped.")


if __name__ == "__main__":
    run_main(main)
