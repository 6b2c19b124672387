"""Makes a pure-Python wheel from a compiled one whose package also works without its compiled part."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

COMPILED = (".so", ".pyd", ".dylib", ".c")


def write_pure_wheel(source: Path, target: Path) -> None:
    """Copy a wheel without its compiled files and with the tag ``py3-none-any``.

    Entries are sorted, stored uncompressed and have the same date, so the result does not depend on the
    version of zlib; its hash is in the lock file.

    Parameters
    ----------
    source
        A platform wheel whose package falls back to Python code (MarkupSafe's does).
    target
        The file to write.
    """
    entries: dict[str, bytes] = {}
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if not name.endswith(("/", *COMPILED)):
                entries[name] = archive.read(name)
    record = next(name for name in entries if name.endswith(".dist-info/RECORD"))
    tags = record.replace("RECORD", "WHEEL")
    entries[tags] = b"Wheel-Version: 1.0\nGenerator: py-attn\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    del entries[record]
    rows = [f"{name},{_record_hash(content)},{len(content)}" for name, content in sorted(entries.items())]
    entries[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(entries.items()):
            info = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, content)


def _record_hash(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
