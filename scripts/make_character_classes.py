"""Writes py_attn/models/character_classes.py: what the tokenizers library takes for letters and numbers.

    .venv/bin/python -m scripts.make_character_classes

Python's own classes change with its version of Unicode, and its white space includes U+001C to U+001F. The
library is therefore asked about every character, as part of a word, by what its pre-tokenisers make of it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

import tokenizers
from tokenizers import pre_tokenizers

from scripts.common import ROOT, Failure, run_main, say

OUTPUT = ROOT / "py_attn" / "models" / "character_classes.py"

HEAD = '''"""What the pre-tokeniser of SmolLM2 takes for letters, numbers and white space.

Written by scripts/make_character_classes.py from the tokenizers library {version}. A class is a list of code
points and ranges of them, in hexadecimal.
"""
'''


def main() -> None:
    """Ask the library and write the module."""
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]

    def pieces(text: str) -> int:
        return len(words.pre_tokenize_str(text))

    def select(test: Callable[[str], bool]) -> set[str]:
        return set(filter(test, characters))

    numbers = select(lambda c: len(digits.pre_tokenize_str(c + c)) == 2)
    letters = select(lambda c: pieces(f"a{c}a") == 1) - numbers
    number_words = select(lambda c: pieces(f"1{c}1") == 1)
    others = select(lambda c: pieces(f"!{c}!") == 1)
    spaces = set(characters) - letters - number_words - others - numbers
    if number_words - numbers:
        raise Failure("pre-tokenisers: ByteLevel takes characters for numbers that Digits does not")
    text = HEAD.format(version=tokenizers.__version__)
    for name, chosen in (("LETTERS", letters), ("NUMBERS", numbers), ("WHITE_SPACE", spaces)):
        lines = "\n".join(textwrap.wrap(" ".join(ranges(map(ord, chosen))), 110))
        text += f'\n{name} = """\n{lines}\n"""\n'
    OUTPUT.write_text(text, encoding="utf-8")
    say(f"{OUTPUT.relative_to(ROOT)}: {len(text)} bytes")


def ranges(codes: Iterable[int]) -> list[str]:
    """Code points in hexadecimal; neighbours as one range."""
    found: list[tuple[int, int]] = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return [f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in found]


if __name__ == "__main__":
    run_main(main)
