"""What Python asks of the side that holds ``navigator.gpu``.

Everything else in py_attn speaks to these two protocols: :mod:`py_attn.gpu.bridge_pyodide` talks to
the page's JavaScript, and the tests put a recording fake in their place. Resources are integer
handles; the far side has no policy of its own.

A program is a stream of u32 words, one record per dispatch::

    pipeline, params size, x, y, z, count, then per buffer: handle, byte offset, byte size

The params of all records lie in one block of bytes, in order, each from the next multiple of
``PARAMS_ALIGNMENT`` on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

PARAMS_ALIGNMENT = 256
Progress = Callable[[int, int], None]


class MatrixConfig(NamedTuple):
    """Subgroup matrices that an adapter multiplies: M×K with K×N of ``component``, sums in ``result``."""

    component: str
    result: str
    m: int
    n: int
    k: int


@dataclass(frozen=True)
class AdapterInfo:
    """The adapter in its own words.

    ``features`` are WebGPU's and, by their names, WGSL's language features. ``software`` is true for a
    fallback adapter, one that computes on the CPU. Limits carry WebGPU's names (``maxBufferSize``, …).
    Subgroup sizes are 0 where there are no subgroups. ``matrix_configs`` are the adapter's subgroup matrices
    (``GPUAdapterInfo.subgroupMatrixConfigs``), none where the device lacks their feature.
    """

    vendor: str
    architecture: str
    description: str
    software: bool
    features: frozenset[str]
    limits: Mapping[str, int]
    subgroup_min_size: int = 0
    subgroup_max_size: int = 0
    matrix_configs: tuple[MatrixConfig, ...] = ()

    @classmethod
    def from_plain(cls, words: Mapping[str, Any]) -> AdapterInfo:
        """From the plain data that web/src/bridge.js gives."""
        configs = tuple(MatrixConfig(*config) for config in words.get("matrix_configs", ()))
        return cls(**{**words, "features": frozenset(words["features"]), "matrix_configs": configs})

    def __str__(self) -> str:
        words = dict.fromkeys(filter(None, (self.vendor, self.architecture, self.description)))
        # Firefox tells scripts no words, so that they cannot tell its users apart.
        return " ".join(words) or f"unnamed {'software adapter' if self.software else 'GPU'}"


@dataclass(frozen=True)
class BridgeError:
    """An error that WebGPU reported: ``kind`` is "shader", "validation", "out-of-memory" or "internal".

    ``line`` is the line of the shader's text for shader errors, else 0.
    """

    kind: str
    label: str
    message: str
    line: int = 0


@dataclass(frozen=True)
class ShaderMessage:
    """What the WGSL compiler says about a text: ``kind`` is "error", "warning" or "info".

    ``line`` and ``column`` count from 1, 0 where it names no place.
    """

    kind: str
    message: str
    line: int = 0
    column: int = 0


@dataclass(frozen=True)
class RawTiming:
    """One dispatch's clocks in microseconds; ``gpu_us`` is None without timestamp queries."""

    gpu_us: float | None
    wall_us: float


class File(Protocol):
    """A file that is read in parts, so that its bytes need not be in Python's memory."""

    @property
    def size(self) -> int:
        """Its length in bytes; 0 once it is closed."""
        ...

    def read(self, begin: int, end: int) -> bytes:
        """A copy of the bytes from ``begin`` up to ``end``.

        Raises
        ------
        ValueError
            When the file has no such bytes, or was closed.
        OSError
            When it cannot be read.
        """
        ...

    def close(self) -> None:
        """Give its memory back. A second call does nothing."""
        ...


def check_range(size: int, begin: int, end: int) -> None:
    """Raise the ``ValueError`` of :meth:`File.read` where a file of ``size`` bytes has no such bytes."""
    if not 0 <= begin <= end <= size:
        raise ValueError(f"file: expected a range within its {size:,} bytes, got bytes {begin:,} to {end:,}")


class DeviceBridge(Protocol):
    """One ``GPUDevice``."""

    info: AdapterInfo

    def lost(self) -> str:
        """Why the device was lost, or "" while it lives."""
        ...

    def create_buffer(self, size: int, label: str) -> int:
        """A storage buffer of ``size`` bytes (a multiple of 4)."""
        ...

    def destroy_buffer(self, buffer: int) -> None: ...

    def write_buffer(self, buffer: int, offset: int, data: Any) -> None:
        """Copy a C-contiguous buffer object whose bytes are a multiple of 4."""
        ...

    def write_file(self, buffer: int, offset: int, file: File, begin: int, end: int) -> None:
        """Copy the bytes ``begin`` to ``end`` of a file; offset and number of bytes are multiples of 4.

        Where the file's bytes are on the far side already, they do not pass through Python.
        """
        ...

    async def read_buffer(self, buffer: int, offset: int, out: Any) -> None:
        """Fill the writable C-contiguous buffer object ``out``; bytes and offset are multiples of 4."""
        ...

    def create_pipeline(self, label: str, wgsl: str, access: str) -> int:
        """A compute pipeline; ``access`` has one letter a buffer, "r" read-only or "w" written.

        The text declares the buffers in group 0, and the params behind them or in group 1, binding 0.
        """
        ...

    def destroy_pipeline(self, pipeline: int) -> None: ...

    async def check_shader(self, wgsl: str) -> Sequence[ShaderMessage]:
        """Everything the WGSL compiler says about a text, which makes no pipeline and no error."""
        ...

    async def compile_us(self, pipeline: int) -> float:
        """How long the pipeline took to be made, in microseconds of wall time."""
        ...

    def run_program(self, words: Any, params: Any) -> None:
        """Decode a stream of u32 words (a buffer object) and submit it, once."""
        ...

    def create_program(self, words: Any) -> int:
        """Decode a stream of u32 words for many submissions."""
        ...

    def submit_program(self, program: int, params: Any, times: int = 1) -> None:
        """Run a program's dispatches ``times`` times over, one after the other, in one submission."""
        ...

    def destroy_program(self, program: int) -> None: ...

    def submit_timed(self, program: int, params: Any, together: bool = False, times: int = 1) -> int:
        """Submit dispatch by dispatch, or all together, with clocks; the ticket goes to :meth:`timings`.

        Each submission runs what it has ``times`` times over.
        """
        ...

    async def timings(self, ticket: int) -> Sequence[RawTiming]: ...

    async def synchronize(self) -> Sequence[BridgeError]:
        """Wait for all submitted work; the errors since the last call, in order.

        A wait that is cancelled leaves its errors to the next one.
        """
        ...

    def destroy(self) -> None: ...


class Bridge(Protocol):
    """Where devices and the site's files come from."""

    async def request_device(self) -> DeviceBridge:
        """A new device with the adapter's own limits and optional features.

        Raises
        ------
        WebGPUUnavailableError
            Saying why there is none.
        """
        ...

    async def fetch_asset(self, name: str, progress: Progress | None = None) -> Any:
        """The bytes of a file of the site, as a buffer object."""
        ...

    async def open_asset(self, name: str, progress: Progress | None = None) -> File:
        """A file of the site, whose bytes stay where the bridge keeps them until it is closed.

        Raises
        ------
        OSError
            When it cannot be fetched, or is not what the site's manifest says.
        asyncio.CancelledError
            When its download is stopped.
        """
        ...

    async def load_note(self, name: str) -> str:
        """A short text that was saved under this name in this browser, "" where there is none."""
        ...

    async def save_note(self, name: str, text: str) -> None:
        """Keep a short text for later visits, if the browser allows."""
        ...
