"""Buffers that cannot be made, in a real device: one larger than any device allows stands in for each."""

import asyncio
import contextlib
import gc
import time

import numpy as np

import py_attn as pa
from e2e.page.families import FAMILIES

#: No adapter allows a buffer of so many bytes.
_TOO_LARGE = 1 << 41


async def lack(family, size=9):
    """Make a call of a family fail at its first, a middle and its last buffer; answer with what each gave.

    Returns
    -------
    list of dict
        "error": what was raised, "" if nothing; "bytes" that live tensors hold more than before; "again":
        whether the same call and a smaller one then give what they gave before.
    """
    device = pa.default_device()
    await _others_are_done(device)
    before = [await _call(device, family, n) for n in (size, size // 2)]
    held = await at_rest(device)
    with failing(device, 0) as made:
        await _call(device, family, size)
    answers = []
    for number in sorted({1, (len(made) + 1) // 2, len(made)}):
        await at_rest(device)
        error = ""
        with failing(device, number):
            try:
                await _call(device, family, size)
            except pa.PyAttnError as raised:
                error = f"{type(raised).__name__}: {raised}"
        left = await at_rest(device) - held
        after = [await _call(device, family, n) for n in (size, size // 2)]
        again = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        answers.append({"error": error, "bytes": left, "again": again})
    return answers


async def _others_are_done(device):
    """Wait until tensors have stood still for half a second: after a loss the page restores its own here."""
    held, since = None, time.monotonic()
    while time.monotonic() - since < 0.5:
        if device.memory_allocated() != held:
            held, since = device.memory_allocated(), time.monotonic()
        await asyncio.sleep(0.05)


async def _call(device, family, size):
    return await FAMILIES[family](device, np.random.default_rng(size), size)


async def at_rest(device):
    """Bytes of live tensors when no buffer is kept, so that the next call makes all of its own."""
    gc.collect()
    device._memory.release()
    await device.synchronize()
    return device.memory_allocated()


@contextlib.contextmanager
def failing(device, number):
    """Buffer ``number`` (from 1 on) of those made inside cannot be made."""
    bridge, made = device.queue.bridge, []
    create = bridge.create_buffer

    def create_buffer(size, label):
        made.append(label)
        return create(_TOO_LARGE if len(made) == number else size, label)

    bridge.create_buffer = create_buffer
    try:
        yield made
    finally:
        bridge.create_buffer = create
