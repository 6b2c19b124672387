"""Writes web/public/sample/*.npz: the attention of the page's example sentences, shown without any weights.

The first of them, minilm.npz, is what the page begins with. web/src/first/examples.json says which sentences
there are, and what is to be seen in them. Run by hand, after `npm run build` or `npm test` fetched the
weights, and commit what it writes:

    .venv/bin/python -m scripts.make_sample

Query, key and value of every layer are computed in float64 from the published weights and kept in float16;
the script says what that rounding does to the attention weights.
"""

from __future__ import annotations

import json

import numpy as np

from py_attn import reference
from py_attn.models import minilm_reference, minilm_weights
from py_attn.models.sample import load_sample, save_sample
from py_attn.models.trace import Trace
from py_attn.models.wordpiece import WordPiece
from scripts.common import CACHE, ROOT, run_main, say

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
LICENCE = "Apache-2.0"
EXAMPLES = ROOT / "web" / "src" / "first" / "examples.json"
PUBLIC = ROOT / "web" / "public"


def main() -> None:
    """Compute, write, read back and print the difference between float16 and float64."""
    folder = CACHE / "assets" / "models" / "minilm"
    tokenizer = WordPiece((folder / "vocab.txt").read_text(encoding="utf-8"))
    config, weights = minilm_weights.read((folder / "model.safetensors").read_bytes(), tokenizer)
    examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    for name, text in {example["file"]: example["text"] for example in examples}.items():
        encoding = tokenizer.encode(text, config.positions)
        layers, embedding = minilm_reference.forward(config, weights, encoding.ids)
        trace = Trace(text, encoding.tokens, encoding.ids, encoding.truncated, layers, embedding)
        data = save_sample(trace, MODEL, LICENCE)
        (PUBLIC / name).parent.mkdir(parents=True, exist_ok=True)
        (PUBLIC / name).write_bytes(data)
        errors = [
            np.abs(
                reference.attention_weights(exact.query, exact.key)
                - reference.attention_weights(kept.query, kept.key)
            ).max()
            for exact, kept in zip(layers, load_sample(data).layers, strict=True)
        ]
        say(
            f"{name}: {len(encoding.ids)} tokens, {len(data):,} bytes;"
            f" float16 changes an attention weight by at most {max(errors):.1e}."
        )


if __name__ == "__main__":
    run_main(main)
