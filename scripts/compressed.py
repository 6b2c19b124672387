"""Compressed copies of the site's files, next to the originals, for servers that can send them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts.common import CACHE, ROOT, Failure, say, sha256_file

FOLDER = CACHE / "compressed"
SUFFIXES = (".br", ".gz")
#: Types of files that pages load and that compress well; archives, weights and pictures do not.
KINDS = (".css", ".html", ".js", ".json", ".md", ".mjs", ".svg", ".txt", ".wasm")
#: Smaller files fit into one or two packets anyway.
LEAST_BYTES = 1024


def compressed_copies(files: dict[str, Path]) -> dict[str, Path]:
    """Map ``path.br`` and ``path.gz`` of the site to copies of ``files``, made where they are not cached.

    Parameters
    ----------
    files : dict
        Every path of the site and its file.
    """
    chosen = {path: _hash(source) for path, source in files.items() if _pays(path, source)}
    missing = {
        digest: files[path]
        for path, digest in chosen.items()
        if not all((FOLDER / f"{digest}{suffix}").is_file() for suffix in SUFFIXES)
    }
    if missing:
        _compress(missing)
    _forget_others(set(chosen.values()))
    return {
        f"{path}{suffix}": FOLDER / f"{digest}{suffix}"
        for path, digest in chosen.items()
        for suffix in SUFFIXES
    }


def _pays(path: str, source: Path) -> bool:
    return path.endswith(KINDS) and source.stat().st_size >= LEAST_BYTES


_hashes: dict[tuple[str, int, int], str] = {}


def _hash(source: Path) -> str:
    """The file's hash, computed once per process."""
    stat = source.stat()
    key = (str(source), stat.st_size, stat.st_mtime_ns)
    if key not in _hashes:
        _hashes[key] = sha256_file(source)
    return _hashes[key]


def _compress(missing: dict[str, Path]) -> None:
    say(f"compressing {len(missing)} files")
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{source}\t{FOLDER / digest}\n" for digest, source in missing.items())
    script = ROOT / "scripts" / "compress.js"
    done = subprocess.run(["node", script], input=lines, text=True, check=False)
    if done.returncode:
        raise Failure("the site's files could not be compressed")


def _forget_others(digests: set[str]) -> None:
    for path in FOLDER.glob("*"):
        if path.name.split(".")[0] not in digests:
            path.unlink()
