"""A view's answers to its front end: :class:`py_attn.viewer.Viewer` with one source and a shared device."""

from __future__ import annotations

from typing import Any

import py_attn as pa
from py_attn.remote.session import Acquire
from py_attn.viewer import Viewer
from py_attn.viewer.engines import ReferenceEngine
from py_attn.viewer.given import GivenEngine, GivenSource
from py_attn.viewer.source import Source
from py_attn.viewer.viewer import Progress

#: What a front end may call. Not ``edit``: it runs Python, and a published notebook is seen by strangers.
METHODS = frozenset(
    {
        "connect",
        "overview",
        "window",
        "weights",
        "row",
        "legend",
        "measure",
        "decode_open",
        "decode_step",
    }
)


class NotebookViewer(Viewer):
    """Answers about one source.

    Attributes
    ----------
    info : dict
        What :meth:`connect` answered last.
    """

    source: Source

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.given = isinstance(source, GivenSource)
        self.info: dict[str, Any] = {}
        if self.given:
            self.engine = GivenEngine()
        self._acquire: Acquire = pa.request_device
        self._open(source)

    async def answer(
        self, method: str, payload: dict[str, Any], acquire: Acquire, progress: Progress | None = None
    ) -> Any:
        """Call a method; a device that was lost is replaced by one of ``acquire``'s.

        Raises
        ------
        ValueError, PyAttnError
            The method's own.
        """
        if method not in METHODS:
            raise ValueError(f"method: expected one of {', '.join(sorted(METHODS))}, got {method!r}")
        self._acquire = acquire
        if method == "connect":
            return await self.connect()
        if not self.info or (self.device is not None and self.device.lost):
            await self.connect()
        try:
            return await self.call(method, payload, progress)
        except pa.DeviceLostError:
            await self.connect()
            return await self.call(method, payload, progress)

    async def connect(self) -> dict[str, Any]:
        """The shared device, as :meth:`Viewer.connect` tells it; the same one while it lives.

        Raises
        ------
        ValueError
            When the source is too much for what there is.
        """
        if self.given:
            versions = {"py_attn": pa.__version__}
            self.info = {
                "webgpu": False,
                "adapter": "none needed: the weights are given",
                "reason": "",
                "features": [],
                "software": False,
                "variants": [],
                "versions": versions,
            }
            return self.info
        if self.device is None or self.device.lost:
            self.release()
            self.info = await super().connect()
        self.engine.check(self.source.heads, self.source.length, self.source.head_dim)
        return self.info

    async def _request_device(self) -> pa.Device:
        return await self._acquire()

    def disconnect(self) -> None:
        """Go on without a GPU, in numpy."""
        self.release()
        self.device = None
        self.info = {}
        if not self.given:
            self.engine = ReferenceEngine()

    def release(self) -> None:
        """Free what lies on the device; it is uploaded again when somebody looks."""
        for layer in self.source.layers:
            layer.kept.clear()
        self._decode = None
