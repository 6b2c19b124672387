"""Runs checks on cases.

A check answers with the largest error over its bound for each result; anything else that is wrong raises.
"""

import asyncio
import gc
import traceback

import py_attn as pa


async def check_all(check, cases):
    """Every case's answer, or {"failed": its traceback}; memory must not grow."""
    # The page shares the device and may upload its own tensors meanwhile, once; a leak grows every time.
    for _ in range(4):
        device = pa.default_device()
        before = device.memory_allocated()
        answers = [await answer_of(check, case) for case in cases]
        gc.collect()
        grown = device.memory_allocated() - before
        # A table of heads or colours lives as long as the device.
        if grown <= 1 << 14:
            return answers
        await asyncio.sleep(1)
    raise AssertionError(f"{grown} bytes were not freed")


async def answer_of(check, case):
    try:
        return await check(case)
    except Exception:
        return {"failed": traceback.format_exc()}
