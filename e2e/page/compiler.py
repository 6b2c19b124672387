"""What the browser's WGSL compiler says."""

import py_attn as pa


async def errors_in(wgsl):
    """The errors of the compiler about a text, each behind its line."""
    messages = await pa.default_device().check_wgsl(wgsl)
    return [f"{message.line}: {message.message}" for message in messages if message.kind == "error"]
