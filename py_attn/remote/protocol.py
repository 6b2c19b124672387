"""The messages between a notebook's kernel and its front end, and how they carry arrays.

The front end is ``web/src/widget.js``, built into ``widget/static/widget.js`` and ``widget.css``.

A *page* is one browser document (a tab). Its id is made once per document, kept on ``globalThis`` and shared
by all widget models in it. A *device* is a ``GPUDevice`` that a page holds for one kernel; the kernel makes
its id. All views in a page share its device, and a message about the device may be sent over any model of
that page.

Traits of the model (synced both ways unless noted)
---------------------------------------------------
``layer``, ``head`` : int
``selection`` : [query, key]
``variant`` : str, the kernel variant that the timings panel measures ("auto", "naive", …)
``parts`` : the parts that are shown, of "overview", "focus", "links", "compare" and "kernel"
``coloring`` : {"colormap": "auto" | "rocket" | …, "scale": "linear" | "sqrt" | "log", "pool": "max" | "mean"}
    "auto": the front end takes "rocket" in a dark theme and "rocket_r" in a light one. The trait is not
    called ``style``, because Jupyter's DOMWidgetView tries to show a trait of that name as a style widget.
``timings`` : dict, kernel → front end; the last answer of ``measure``, {} before
``tokens`` : list of str, ``title`` : str, kernel → front end
``source`` : dict, kernel → front end; what ``Viewer.open_…`` answers on the page, without the tokens
    (title, layers, heads, kvHeads, length, headDim, note, engine, edited, and a kind: "tensors", or
    "weights", which can be neither timed nor decoded)
``state`` : "live" | "error", kernel → front end; ``message`` : str, the error or a note ("" for none)
``still`` : bytes, kernel → front end; the snapshot, a PNG of the last map (a pixel for each cell),
    ``still_text`` : str, its caption. A front end that gets no ``welcome`` (a saved notebook, an exported
    page) shows it and says so.
``still_id`` : str, kernel → front end; the id of an element elsewhere in the document that shows the same
    snapshot where no JavaScript runs. It is hidden while a view of the model is mounted, by a rule in a
    ``<style>`` of the document, because the element may be added later and may be replaced.

Custom messages: front end → kernel
-----------------------------------
``{kind: "hello", page, webgpu: bool, reason: str}``
    Sent when the model exists (``initialize``), and again when no answer comes within some seconds.
``{kind: "views", page, count}``
    How many views of this model are mounted in the page; after each mount and unmount.
``{kind: "set", page, traits: {layer: 1, …}}``
    New values of traits, in addition to ``model.save_changes()`` with the same ones. Jupyter's model sends no
    update before the previous one was answered with "idle", which ipykernel 7.4 leaves out while an
    asynchronous cell runs; after that no change would ever arrive. (marimo, in turn, needs the update.)
``{kind: "call", page, id, method, payload}`` + buffers
    Calls a method of :data:`py_attn.viewer.methods.METHODS`, as the page calls its worker; only those marked
    ``notebook``, none of which runs a visitor's Python. ``id`` counts per page.
``{kind: "bridge-answer", page, id, result | error}`` + buffers
``{kind: "lost", page, device, reason}``
    The device was lost.
``{kind: "pong", page, id}``
    The answer to ``ping``, sent at once.
``{kind: "closed", page}``
    This model is no longer in this page: the page was left, or the model was closed.

Custom messages: kernel → front end
-----------------------------------
Every page receives them, and ignores those with another page's id.

``{kind: "welcome", page, kernel}``
    The answer to ``hello``. Ids of devices begin with ``kernel`` and a colon; a page in which a kernel has no
    model any more destroys that kernel's devices.
``{kind: "answer", page, id, result | error}`` + buffers, ``{kind: "progress", page, id, news: [...]}``
    ``error`` is {"type": class name, "message": str}.
``{kind: "bridge", page, device, ops: [{op, args, id?}, …]}`` + buffers
    Operations of :class:`py_attn.gpu.bridge.DeviceBridge`, in order. Those with an ``id`` are answered with
    ``bridge-answer`` (an ``error`` is a string). If one without an id throws, the next ``synchronize``
    reports it as {"kind": "internal", "label": op, "message": …, "line": 0}.
``{kind: "ping", page, id}``
    Sent while the kernel waits; a page that does not answer for some time counts as gone.
``{kind: "closed"}``
    Python closed the view; the front end can free everything that it holds for it.

Operations
----------
The kernel chooses the handles. It numbers all objects with one counter, whatever they are, and the words of a
program refer to buffers and pipelines by these numbers.

=================  =========================================  =======================================
op                 args                                       answer
=================  =========================================  =======================================
request_device                                                the object of ``DeviceBridge.info()``
create_buffer      handle, size, label
destroy_buffer     handle
write_buffer       handle, offset, bytes
read_buffer        handle, offset, size                       bytes
create_pipeline    handle, label, wgsl, access
destroy_pipeline   handle
check_shader       wgsl                                       [{kind, message, line, column}, …]
compile_us         handle                                     number
create_program     handle, words (u32)
submit_program     handle, params (bytes), times
submit_timed       ticket, handle, params (bytes), together
                   (bool), times
destroy_program    handle
timings            ticket                                     [[gpu µs or null, wall µs], …]
synchronize                                                   [{kind, label, message, line}, …]
destroy
=================  =========================================  =======================================

Arrays
------
Anywhere in ``payload``, ``result`` and ``args`` an array is ``{"$buffer": n, "dtype": "uint8", "shape":
[...]}``, where n is the index of the message's binary buffer; bytes are arrays of uint8. dtypes have
numpy's names; the bytes are little-endian and in C order. A buffer need not be aligned in the memory of the
message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_BUFFER = "$buffer"


def pack(value: Any, buffers: list[Any]) -> Any:
    """``value`` as JSON can hold it; the bytes of its arrays are appended to ``buffers``."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        buffers.append(array.reshape(-1).view(np.uint8).data)
        return {_BUFFER: len(buffers) - 1, "dtype": array.dtype.name, "shape": list(value.shape)}
    if isinstance(value, bytes | bytearray | memoryview):
        view = memoryview(value).cast("B")
        buffers.append(view)
        return {_BUFFER: len(buffers) - 1, "dtype": "uint8", "shape": [view.nbytes]}
    if isinstance(value, Mapping):
        return {str(key): pack(item, buffers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item, buffers) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def unpack(value: Any, buffers: Sequence[Any]) -> Any:
    """The inverse of :func:`pack`; arrays are read-only views of the buffers."""
    if isinstance(value, Mapping):
        if _BUFFER in value:
            array = np.frombuffer(buffers[value[_BUFFER]], np.dtype(value["dtype"]))
            return array.reshape(value["shape"])
        return {key: unpack(item, buffers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unpack(item, buffers) for item in value]
    return value
