"""A device that has worked for long is as it was: no bytes, no buffers, no kernels and no objects more."""

import os

import pytest

NATIVE = os.environ.get("LAB") == "native"
#: Without a browser a call takes milliseconds, and the whole number takes minutes (`npm run test:native`).
CALLS = 10_000 if NATIVE else 300


# The whole number takes minutes on a software adapter.
@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_thousands_of_calls_leave_nothing_behind(lab):
    found = lab.run(f"from e2e.page.soak import soak\nawait soak({CALLS})", timeout=3600)
    before, halfway, after = found["before"], found["halfway"], found["after"]
    # Times are told and not judged: other work of the machine is in them.
    print(found)
    # In a page, the page itself may make tensors meanwhile, before the first half is over.
    assert after["bytes"] == halfway["bytes"]
    assert after["kept"] == 0
    assert after["buffers"] == halfway["buffers"]
    assert after["programs"] == halfway["programs"]
    # Kernels are compiled for dtypes and forms, of which the first half has met all.
    assert after["pipelines"] == halfway["pipelines"]
    # A few may stay of shape buckets that the first half has not met; what stays of 1 call in 50 is a leak.
    assert after["objects"] < halfway["objects"] + 100
    if NATIVE:
        assert after["bytes"] == before["bytes"]
        assert after["buffers"] == before["buffers"]
