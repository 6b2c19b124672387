"""SwiftShader, a Vulkan driver that needs no graphics card: Chromium brings it, others can use it."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.browser import find_browser
from scripts.common import CACHE

#: Where the files lie if they are not beside the program: Debian and others start Chromium by a script.
FOLDERS = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/usr/lib64/chromium-browser")
LOADER, DRIVER = "libvulkan.so.1", "vk_swiftshader_icd.json"


def swiftshader_environment() -> dict[str, str]:
    """Return the environment variables under which a program finds SwiftShader as its Vulkan driver.

    Empty where the browser brings none; the program then has the system's own drivers.
    """
    browser = find_browser()
    folders = [*([browser.resolve().parent] if browser else []), *map(Path, FOLDERS)]
    found = next((f for f in folders if (f / LOADER).is_file() and (f / DRIVER).is_file()), None)
    if found is None:
        return {}
    # A folder of its own for the loader: other libraries beside it must not take the place of the system's.
    loader = CACHE / "vulkan" / LOADER
    loader.parent.mkdir(parents=True, exist_ok=True)
    if loader.resolve() != (found / LOADER).resolve():
        loader.unlink(missing_ok=True)
        loader.symlink_to(found / LOADER)
    paths = [str(loader.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"VK_ICD_FILENAMES": str(found / DRIVER), "LD_LIBRARY_PATH": os.pathsep.join(paths)}
