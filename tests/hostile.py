"""What the tests of file readers share: bytes that somebody damaged, and what a reader may do with them."""

import struct
import time
import tracemalloc

from hypothesis import strategies as st

#: Sizes and counts that break arithmetic: signs, 32 and 64 bits, and more than any memory.
HUGE = [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
#: The goals are 2 s and 200 MB. The clock is for what would never end, as busy machines take longer.
MOST_SECONDS = 20
MOST_BYTES = 200_000_000


def refuses_or_reads(read, data, errors=(ValueError, TypeError)):
    """The error with which ``read`` refuses ``data``, or None; it must be clear, soon and cheap."""
    begun = time.perf_counter()
    tracemalloc.start()
    try:
        read(data)
        error = None
    except errors as raised:
        error = raised
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < MOST_BYTES, f"{most:,} bytes"
    assert time.perf_counter() - begun < MOST_SECONDS
    if error is not None:
        words = str(error)
        # What was wrong where, in words that fit a line.
        assert ": " in words[:200], repr(error)
        assert words[:1].islower() or words[:1] in "QKV", repr(error)
        assert len(words) < 3000, len(words)
    return error


@st.composite
def damaged(draw, wholes):
    """One of the files with a few faults: bits flipped, parts missing, doubled or exchanged, huge numbers."""
    data = bytearray(draw(wholes))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        fault = draw(st.sampled_from(["flip", "byte", "cut", "gap", "double", "number", "noise"]))
        stop = min(len(data), at + draw(st.integers(1, 40)))
        if fault == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif fault == "byte" and data:
            data[at] = draw(st.integers(0, 255))
        elif fault == "cut":
            del data[at:]
        elif fault == "gap":
            del data[at:stop]
        elif fault == "double":
            data[at:at] = data[at:stop]
        elif fault == "number":
            size, form = draw(st.sampled_from([(4, "<I"), (8, "<Q")]))
            data[at : at + size] = struct.pack(form, draw(st.sampled_from(HUGE)) % (1 << 8 * size))
        else:
            data[at:stop] = draw(st.binary(max_size=40))
    return bytes(data)
