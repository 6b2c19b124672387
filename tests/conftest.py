"""Fixtures that several test modules share."""

from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class MiniLMFiles:
    weights: Path
    vocabulary: Path


@pytest.fixture(scope="session")
def minilm_files():
    """The published model's files, as the setup script fetched them."""
    folder = Path(__file__).parent.parent / ".cache" / "assets" / "models" / "minilm"
    files = MiniLMFiles(folder / "model.safetensors", folder / "vocab.txt")
    if not (files.weights.exists() and files.vocabulary.exists()):
        pytest.skip(f"no MiniLM in {folder}: npm test fetches it")
    return files
