"""What the kernel and the front end of a notebook widget tell each other.

The front end is ``web/src/widget.js``, built into ``static/widget.js`` and ``static/widget.css``.
Words: a *page* is one browser document (a tab); it has an id made once per document, kept on
``globalThis`` and shared by all models in it. A *device* is a ``GPUDevice`` that a page holds for one
kernel; its id is made by the kernel. Several views share a page's device, and a message about it may
come over any model of that page.

Traits of the model (synced both ways unless noted)
---------------------------------------------------
``layer``, ``head`` : int
``selection`` : [query, key]
``variant`` : str, the kernel variant that the timings panel measures ("auto", "naive", …)
``coloring`` : {"colormap": "auto" | "rocket" | …, "scale": "linear" | "sqrt" | "log", "pool": "max" | "mean"}
    "auto": the front end takes "rocket" in the dark and "rocket_r" in the light. Not called ``style``:
    Jupyter's DOMWidgetView takes a trait of that name for a style widget and tries to show it.
``timings`` : dict, kernel → front end; the last answer of ``measure``, {} before
``tokens`` : list of str, ``title`` : str, kernel → front end
``source`` : dict, kernel → front end; what the ``open_…`` methods answer on the page, without the tokens
    (kind "tensors" or "weights", where there is nothing to measure or decode; title, layers, heads,
    kvHeads, length, headDim, note, engine, edited)
``state`` : "live" | "error", kernel → front end; ``message`` : str, why, or a note ("" for none)
``still`` : bytes, kernel → front end; a PNG of the last map (one pixel a cell), ``still_text`` : str, what
    it shows. A front end that gets no ``welcome`` (a saved notebook, an exported page) shows it and says so.
``still_id`` : str, kernel → front end; the id of an element that may lie elsewhere in the document, with the
    same still for where no JavaScript runs. While a view of the model is mounted it is hidden (a rule in a
    ``<style>`` of the document: the element may come later, and be replaced).

Custom messages: front end → kernel
-----------------------------------
``{kind: "hello", page, webgpu: bool, reason: str}``
    Once a model is there (``initialize``), and again when it is not answered within some seconds.
``{kind: "views", page, count}``
    How many views of this model are mounted in the page; after each mount and unmount.
``{kind: "set", page, traits: {layer: 1, …}}``
    New values of traits, beside ``model.save_changes()`` with the same ones: Jupyter's model sends no update
    before the last one was answered with "idle", which ipykernel 7.4 leaves out while an asynchronous cell
    runs, and then no change would ever arrive again. (marimo, in turn, needs the update.)
``{kind: "call", page, id, method, payload}`` + buffers
    A method of :data:`py_attn.viewer.methods.METHODS`, as the page calls its worker; only those marked
    ``notebook``, none of which runs a visitor's Python. ``id`` counts per page.
``{kind: "bridge-answer", page, id, result | error}`` + buffers
``{kind: "lost", page, device, reason}``
    A device was lost.
``{kind: "pong", page, id}``
    The answer to ``ping``, at once.
``{kind: "closed", page}``
    This model goes from this page (the page is left, the model is closed).

Custom messages: kernel → front end
-----------------------------------
Every page gets them; a page ignores those with another page's id.

``{kind: "welcome", page, kernel}``
    Answers ``hello``. Ids of devices begin with ``kernel`` and a colon; a page in which a kernel has no
    model any more destroys that kernel's devices.
``{kind: "answer", page, id, result | error}`` + buffers, ``{kind: "progress", page, id, news: [...]}``
    ``error`` is {"type": class name, "message": str}.
``{kind: "bridge", page, device, ops: [{op, args, id?}, …]}`` + buffers
    Operations of :class:`py_attn.gpu.bridge.DeviceBridge`, in order; those with an ``id`` are answered with
    ``bridge-answer`` (an ``error`` is a string). One that throws without having an id is reported by the
    next ``synchronize`` as {"kind": "internal", "label": op, "message": …, "line": 0}.
``{kind: "ping", page, id}``
    Sent while the kernel waits; a page that does not answer for some time counts as gone.
``{kind: "closed"}``
    The view was closed by Python; what it holds can go.

Operations
----------
Handles are chosen by the kernel and count up over all kinds; programs' words carry them.

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
compile_us         handle                                     number
create_program     handle, words (u32)
submit_program     handle, params (bytes)
submit_timed       ticket, handle, params (bytes), together (bool)
destroy_program    handle
timings            ticket                                     [[gpu µs or null, wall µs], …]
synchronize                                                   [{kind, label, message, line}, …]
destroy
=================  =========================================  =======================================

Arrays
------
Anywhere in ``payload``, ``result`` and ``args`` an array is ``{"$buffer": n, "dtype": "uint8", "shape":
[...]}``, n the number of the message's binary buffer; bytes are arrays of uint8. dtypes are numpy's names,
little-endian, C order. Buffers may begin at any byte offset of what carries them.
"""

from py_attn.gpu.wire import pack, unpack

__all__ = ["pack", "unpack"]
