"""The compiled shaders of a device, and the exceptions for their errors."""

from __future__ import annotations

from py_attn.errors import GPUOutOfMemoryError, GPUValidationError, ShaderError
from py_attn.gpu.bridge import BridgeError, DeviceBridge
from py_attn.gpu.recorder import Dispatch
from py_attn.gpu.shader import Shader


class Pipelines:
    """Pipelines by their shader's text; errors name the label that each pipeline was given.

    Attributes
    ----------
    generation : int
        Counts how often pipelines were forgotten: handles are good for one generation only.
    """

    def __init__(self, bridge: DeviceBridge) -> None:
        self.generation = 0
        self._bridge = bridge
        self._handles: dict[str, int] = {}
        self._shaders: dict[str, Shader] = {}
        self._compile_told: set[int] = set()

    def __len__(self) -> int:
        return len(self._handles)

    def find(self, shader: Shader) -> tuple[int, bool]:
        """The pipeline of ``shader``, and whether this call creates it."""
        handle = self._handles.get(shader.wgsl)
        if handle is not None:
            return handle, False
        handle = self._handles[shader.wgsl] = self._create(shader)
        return handle, True

    def _create(self, shader: Shader) -> int:
        # Errors come back by label, so texts of the same name and variant are numbered.
        label, number = shader.label, 1
        while self._shaders.setdefault(label, shader) != shader:
            number += 1
            label = f"{shader.label} #{number}"
        access = "".join("w" if b.writes else "r" for b in shader.bindings)
        return self._bridge.create_pipeline(label, shader.wgsl, access)

    async def take_compile_us(self, dispatch: Dispatch) -> float | None:
        """How long the dispatch's pipeline took to compile, the first time that this is asked; then None."""
        if not dispatch.compiled or dispatch.pipeline in self._compile_told:
            return None
        self._compile_told.add(dispatch.pipeline)
        return await self._bridge.compile_us(dispatch.pipeline)

    def clear(self) -> None:
        """Forget all pipelines."""
        for handle in self._handles.values():
            self._bridge.destroy_pipeline(handle)
        self._handles.clear()
        self.generation += 1

    def forget(self, error: BridgeError) -> None:
        """Forget the pipeline that failed, so that it is compiled again when it is needed."""
        shader = self._shaders.get(error.label)
        if shader is not None:
            self._handles.pop(shader.wgsl, None)
            self.generation += 1

    def exception(self, error: BridgeError, more: int) -> Exception:
        """What to raise for ``error``, which came with ``more`` others."""
        message = error.message.strip() + (f" ({more} more errors)" if more else "")
        shader = self._shaders.get(error.label)
        if error.kind == "shader" and shader is not None:
            self.forget(error)
            where = shader.origin(error.line) if error.line else "unknown line"
            return ShaderError(f"shader {error.label}, {where}: {message}")
        if error.kind == "out-of-memory":
            return GPUOutOfMemoryError(f"{error.label}: {message}")
        return GPUValidationError(f"{error.label}: {message}")
