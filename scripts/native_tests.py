"""Runs the end-to-end tests of kernels and models in plain Python, over wgpu, without a browser.

They are the tests in `e2e/` that ask for `lab` and for no page (`e2e/native_lab.py`). Arguments go to pytest:
``npm run test:native -- e2e/test_models.py -k linear``.

They need a Vulkan driver: the one in ``$VK_ICD_FILENAMES`` or ``$VK_DRIVER_FILES``, else SwiftShader, which
Chromium brings, else the system's; on Debian without any, mesa's software driver is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys

from scripts.common import CACHE, VENV_PYTHON, Failure, call, run_main, say, with_tests
from scripts.setup import apt_install, can_apt_install
from scripts.vulkan import swiftshader_environment

#: Prints the adapter that wgpu finds; fails where there is none.
FIND = """
import wgpu
adapters = wgpu.gpu.enumerate_adapters_sync()
found = [a for a in adapters if a.info["backend_type"] in ("Vulkan", "Metal", "D3D12")]
raise SystemExit(print(found[0].summary) if found else 1)
"""
DRIVERS = "mesa-vulkan-drivers"


def environment() -> dict[str, str]:
    """The environment variables of the tests."""
    given = any(os.environ.get(name) for name in ("VK_ICD_FILENAMES", "VK_DRIVER_FILES"))
    own = {
        "LAB": "native",
        "PY_ATTN_CACHE": str(CACHE / "native"),
        "PY_ATTN_MODELS": str(CACHE / "assets" / "models"),
    }
    return os.environ | ({} if given else swiftshader_environment()) | own


def find_adapter(variables: dict[str, str]) -> str:
    """The adapter on which the tests will run, "" where there is none."""
    found = subprocess.run(
        [str(VENV_PYTHON), "-c", FIND], env=variables, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() if found.returncode == 0 else ""


def with_adapter() -> dict[str, str]:
    """The environment variables of the tests, once there is an adapter to run them on.

    Raises
    ------
    Failure
        Where there is none, and no driver can be installed.
    """
    variables = environment()
    adapter = find_adapter(variables)
    if not adapter and sys.platform == "linux" and can_apt_install():
        apt_install(DRIVERS)
        adapter = find_adapter(variables)
    if not adapter:
        raise Failure(
            f"wgpu finds no graphics adapter: no Vulkan driver is installed (on Debian: sudo apt-get install "
            f"{DRIVERS}), and no Chromium with SwiftShader was found."
        )
    say(f"tests on {adapter}")
    return variables


def main() -> None:
    """Find an adapter, and run the tests on it."""
    variables = with_adapter()
    options = with_tests(sys.argv[1:], "e2e")
    call([VENV_PYTHON, "-m", "pytest", *options], "a test failed.", env=variables)


if __name__ == "__main__":
    run_main(main)
