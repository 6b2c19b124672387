"""A device that has worked for long is as it was: no bytes, no buffers, no kernels more, and not slower."""

import os


#: Without a browser a call takes a millisecond.
CALLS = 10_000 if os.environ.get("LAB") == "native" else 500


def test_thousands_of_calls_leave_nothing_behind(lab):
    found = lab.run(f"from e2e.page.soak import soak\nawait soak({CALLS})", timeout=3600)
    before, halfway, after = found["before"], found["halfway"], found["after"]
    print(found)
    # The page may make tensors of its own meanwhile, before the first half is over.
    assert after["bytes"] == halfway["bytes"]
    assert after["kept"] == 0
    assert after["buffers"] == halfway["buffers"]
    if CALLS == 10_000:
        assert after["bytes"] == before["bytes"]
        assert after["buffers"] == before["buffers"]
    # Kernels are compiled for dtypes and forms, of which the first half has met all; objects are caches of theirs.
    assert after["pipelines"] == halfway["pipelines"]
    assert after["objects"] < 1.1 * halfway["objects"]
    first, last = found["seconds"]
    assert last < 4 * first + 0.01
