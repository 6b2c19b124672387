"""What tests of the viewer share: calling its methods, and the page's sample."""

import asyncio
from pathlib import Path

SAMPLE = Path(__file__).parents[1] / "web" / "public" / "sample" / "minilm.npz"


def call(viewer, method, **payload):
    """The answer of one of a viewer's methods."""
    return asyncio.run(viewer.call(method, payload))
