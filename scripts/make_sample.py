"""Writes web/public/sample/minilm.npz: one sentence's attention, shown before any weights are loaded.

Run by hand, after `npm run build` or `npm test` fetched the weights, and commit what it writes:

    .venv/bin/python -m scripts.make_sample

Query, key and value of every layer are computed in float64 from the published weights and kept in float16;
the script says what that rounding does to the attention weights.
"""

from __future__ import annotations

import numpy as np

from py_attn import reference
from py_attn.models import minilm_reference, minilm_weights
from py_attn.models.sample import load_sample, save_sample
from py_attn.models.trace import Trace
from py_attn.models.wordpiece import WordPiece
from scripts.common import CACHE, ROOT, run_main, say

# Layer 6, head 12 links "it" to "cat"; layer 3, head 10 links the two mice.
SENTENCE = "The cat did not chase the mouse because it was tired, so the mouse got away."
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LICENCE = "Apache-2.0"
TARGET = ROOT / "web" / "public" / "sample" / "minilm.npz"


def main() -> None:
    """Compute, write, read back and print the difference between float16 and float64."""
    folder = CACHE / "assets" / "models" / "minilm"
    tokenizer = WordPiece((folder / "vocab.txt").read_text(encoding="utf-8"))
    config, weights = minilm_weights.read((folder / "model.safetensors").read_bytes(), tokenizer)
    encoding = tokenizer.encode(SENTENCE, config.positions)
    layers, embedding = minilm_reference.forward(config, weights, encoding.ids)
    trace = Trace(SENTENCE, encoding.tokens, encoding.ids, encoding.truncated, layers, embedding)
    data = save_sample(trace, MODEL, LICENCE)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(data)
    errors = [
        np.abs(
            reference.attention_weights(exact.query, exact.key)
            - reference.attention_weights(kept.query, kept.key)
        ).max()
        for exact, kept in zip(layers, load_sample(data).layers, strict=True)
    ]
    say(
        f"{TARGET.relative_to(ROOT)}: {len(encoding.ids)} tokens, {len(data):,} bytes;"
        f" float16 changes an attention weight by at most {max(errors):.1e}."
    )


if __name__ == "__main__":
    run_main(main)
