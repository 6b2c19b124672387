"""Thousands of calls of all families, of shapes that grow and shrink: what they leave behind."""

import asyncio
import contextlib
import gc
import math
import time
from statistics import median

import numpy as np

import py_attn as pa
from e2e.page.families import FAMILIES, normal

#: Sizes go up and down between 1 and this, in one period of so many calls.
_LARGEST, _PERIOD = 40, 300


async def soak(calls, seed=0):
    """Make the calls; answer with what is there before and after, and how long a small call takes.

    Returns
    -------
    dict
        "before", "halfway" and "after": what :func:`left_behind` gives; "seconds": of the median probe in the
        first and in the last tenth.
    """
    device, random = pa.default_device(), np.random.default_rng(seed)
    probe = device.tensor(normal(random, 1, 1, 4, 8))
    # Tables that live as long as the device, and the kernels of every shape.
    for size in range(1, 13):
        for family in FAMILIES.values():
            await family(device, random, size)
    before = left_behind(device)
    seconds = []
    for number in range(calls):
        wave = 1 - math.cos(2 * math.pi * number / _PERIOD)
        size = 1 + round(wave / 2 * _LARGEST) + int(random.integers(3))
        family = FAMILIES[str(random.choice(list(FAMILIES)))]
        await FORMS[str(random.choice(list(FORMS), p=_SHARES))](family, device, random, size)
        begun = time.perf_counter()
        await pa.attention(probe, probe, probe).numpy()
        seconds.append(time.perf_counter() - begun)
        if number == calls // 2:
            await device.synchronize()
            halfway = left_behind(device)
    await device.synchronize()
    tenth = max(1, calls // 10)
    return {
        "before": before,
        "halfway": halfway,
        "after": left_behind(device),
        "seconds": [median(seconds[:tenth]), median(seconds[-tenth:])],
    }


def left_behind(device):
    """What there is when nothing is in use.

    Returns
    -------
    dict
        "bytes" of live tensors, "kept" buffers' bytes once they are released, "buffers" and "programs" where
        the bridge counts them, "pipelines", "plans" of earlier calls, and "objects" of Python without those
        plans: one for each new shape is kept, until there are so many that all are forgotten.
    """
    plans = len(device.plans)
    device.plans._plans.clear()
    gc.collect()
    device._memory.release()
    device.queue.flush()
    held = {name: getattr(device.queue.bridge, f"_{name}", None) for name in ("buffers", "programs")}
    return {
        "bytes": device.memory_allocated(),
        "kept": device._memory.kept,
        **{name: len(found) if isinstance(found, dict) else None for name, found in held.items()},
        "pipelines": len(device.queue.pipelines),
        "plans": plans,
        "objects": len(gc.get_objects()),
    }


async def awaited(family, device, random, size):
    await family(device, random, size)


async def cancelled(family, device, random, size):
    task = asyncio.ensure_future(family(device, random, size))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def dropped(_, device, random, size):
    """A call of which nobody wants the result."""
    x = normal(random, 1, 2, size, 8)
    pa.attention(x, x, x)


async def refused(_, device, random, size):
    x = device.tensor(normal(random, 1, 2, size, 8))
    with contextlib.suppress(ValueError):
        pa.attention(x, x[..., :5], x)


async def recorded(_, device, random, size):
    """A program that is submitted twice, and dropped."""
    x = device.tensor(normal(random, 1, 2, size, 8))
    with device.record() as program:
        out = pa.attention(x, x, x)
    program.submit()
    program.submit()
    await out.numpy()


async def together(family, device, random, size):
    """Calls that wait at the same time."""
    sources = [np.random.default_rng(int(random.integers(1 << 30))) for _ in range(3)]
    await asyncio.gather(*(family(device, source, size) for source in sources))


FORMS = {each.__name__: each for each in (awaited, cancelled, dropped, refused, recorded, together)}
_SHARES = [0.8, 0.04, 0.04, 0.04, 0.04, 0.04]
