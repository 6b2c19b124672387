"""A notebook view's answers to its front end: a viewer with one source and a shared device."""

from __future__ import annotations

from typing import Any

import py_attn as pa
from py_attn.remote.session import Acquire
from py_attn.viewer import Viewer
from py_attn.viewer.methods import METHODS
from py_attn.viewer.panels import status
from py_attn.viewer.sources.given import GivenSource
from py_attn.viewer.sources.source import Source
from py_attn.viewer.viewer import Progress


class NotebookViewer(Viewer):
    """Answers about one source.

    Attributes
    ----------
    given : bool
        Whether the source's weights were given, so that no device is needed.
    info : dict
        What :meth:`connect` answered last.
    """

    source: Source

    def __init__(self, source: Source) -> None:
        super().__init__(lambda: self._acquire())
        self._acquire: Acquire = pa.request_device
        self.source = source
        self.given = isinstance(source, GivenSource)
        self.info: dict[str, Any] = {}

    async def answer(
        self, method: str, payload: dict[str, Any], acquire: Acquire, progress: Progress | None = None
    ) -> Any:
        """Call a method; a device that was lost is replaced by one of ``acquire``'s.

        Raises
        ------
        ValueError, PyAttnError
            The method's own.
        """
        allowed = [name for name, each in METHODS.items() if each.notebook]
        if method not in allowed:
            raise ValueError(f"method: expected one of {', '.join(sorted(allowed))}, got {method!r}")
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
        """The shared device, as :func:`status.describe` describes it; the same one while it lives.

        Raises
        ------
        ValueError
            When the source would take minutes to compute.
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
            self.info = await status.connect(self)
        self.engine.check(self.source.heads, self.source.length, self.source.head_dim)
        return self.info

    def disconnect(self) -> None:
        """Continue without a GPU, with numpy."""
        self.release()
        self.use(None)
        self.info = {}

    def release(self) -> None:
        """Free the source's tensors on the device; they are uploaded again when a front end needs them."""
        for layer in self.source.layers:
            layer.kept.clear()
        self.decode = None
