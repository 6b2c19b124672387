"""The measured choice of tiles in the page: real clocks, and what the browser keeps."""

SETUP = """
import json
import numpy as np
import py_attn as pa
from e2e.page.configs import smallest_tile_only

device = pa.default_device()
await device.tuner.forget()
x = device.tensor(np.random.default_rng(0).standard_normal((1, 2, 40, 8)))
"""


def test_measured_kept_and_used(lab):
    lab.run(SETUP)
    found = lab.run(
        """
with smallest_tile_only():
    before = await pa.attention(x, x, x).numpy()
    (measured,) = await device.tune(30)
    # Whatever was faster here, the choice that a later visit finds is taken.
    kept = json.loads(await device.tuner._bridge.load_note(device.tuner._name))
    await device.tuner._bridge.save_note(device.tuner._name, json.dumps({measured.key: "tiled small"}))
    again = pa.Device(device._bridge, device.tuner._bridge)
    await again.tuner.load()
    await device.tuner.load()
    with device.timer() as timer:
        after = pa.attention(x, x, x)
    (row,) = await timer.results()
    error = np.abs(await after.numpy() - before).max()
[measured.choice in measured.us, sorted(measured.us), kept == {measured.key: measured.choice}, row.variant,
 bool(error < 1e-6)]
""",
    )
    assert found == [True, ["static", "subgroup small", "tiled small"], True, "tiled", True]
    assert (
        lab.run("await device.tuner.forget()\n(await device.tuner._bridge.load_note(device.tuner._name))")
        == "{}"
    )


def test_switched_off(lab):
    lab.run(SETUP)
    assert lab.run("""
device.autotune = False
try:
    await pa.attention(x, x, x).numpy()
    measured = await device.tune(1)
finally:
    device.autotune = True
[len(measured), len(device.tuner.choices)]
""") == [0, 0]  # fmt: skip
