"""Which of a file's arrays are the queries, the keys, the weights and the rest, by their names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from py_attn.viewer.sources.formats import MAX_ARRAY_BYTES, Contents, Entry, float32_bytes, shorten
from py_attn.viewer.sources.source import Array

#: The names of each array, in lower case. A prefix and a layer's number may stand around them.
NAMES: dict[str, tuple[str, ...]] = {
    "query": ("query", "queries", "q", "query_states", "query_layer", "hook_q"),
    "key": ("key", "keys", "k", "key_states", "key_layer", "hook_k"),
    "value": ("value", "values", "v", "value_states", "value_layer", "hook_v"),
    "weights": (
        *("weights", "attention", "attentions", "attn", "attention_weights", "attn_weights"),
        *("attention_probs", "attn_probs", "hook_pattern", "encoder_attentions", "decoder_attentions"),
        "cross_attentions",
    ),
    "qkv": ("qkv",),
}
_ROLE_OF = {name: role for role, names in NAMES.items() for name in names}
_MOST_WORDS = max(name.count("_") + 1 for name in _ROLE_OF)
#: The most that tokens, numpy's texts of one length, and any other option may take.
MAX_TOKENS_BYTES = 1 << 26
MAX_OPTION_BYTES = 1 << 20
#: What may stand beside the arrays, and its other names.
OPTIONS: dict[str, tuple[str, ...]] = {
    "tokens": ("token_strings", "input_tokens"),
    "title": ("text",),
    "causal": ("is_causal",),
    "window": (),
    "softcap": (),
    "scale": ("scaling",),
    "mask": ("attn_mask",),
    "attention_mask": (),
    "layout": (),
}
EXPECTED = (
    "query and key (also q and k, query_states and key_states), or attentions (also attention_weights), with "
    "a layer's number where each layer is an array of its own, such as attentions.0; or qkv"
)


@dataclass(frozen=True)
class NamedArrays:
    """A file whose names have been understood.

    ``arrays`` has the arrays' names for each role, one or several by layer; ``options`` those of the rest;
    ``ignored`` the roles that are not needed beside them.
    """

    contents: Contents
    arrays: dict[str, list[str]]
    options: dict[str, str]
    layers: list[int] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    @property
    def numbered(self) -> bool:
        return bool(self.layers)

    def axes(self, role: str) -> int:
        return len(self.contents.entries[self.arrays[role][0]].shape)

    def shape(self, role: str) -> tuple[int, ...]:
        return self.contents.entries[self.arrays[role][0]].shape

    def check(self, roles: list[str]) -> None:
        """Refuse arrays that hold no numbers or would not fit, before they are read."""
        for role in roles:
            for name in self.arrays[role]:
                self.contents.check(name)
                if (entry := self.contents.entries[name]).dtype.startswith(("str", "bytes", "complex")):
                    raise TypeError(f"{role}: expected real numbers, got {entry}")
        names = [name for role in roles for name in self.arrays[role]]
        size = sum(float32_bytes(self.contents.entries[name]) for name in names)
        if size > MAX_ARRAY_BYTES:
            raise ValueError(
                f"{roles[0]}: expected at most {MAX_ARRAY_BYTES >> 20:,} MiB as float32, got {size >> 20:,} "
                f"MiB in {'; '.join(self.lines(role)[0] for role in roles)}; save fewer layers, heads "
                "or tokens"
            )

    def load(self, role: str) -> list[Array]:
        """The role's arrays, one by layer where they are numbered; all of one shape."""
        names = self.arrays[role]
        entries = [self.contents.entries[name] for name in names]
        odd = next((name for name in names if self.contents.entries[name].shape != entries[0].shape), None)
        if odd is not None:
            raise ValueError(
                f"{role}: expected layers of one shape, got {shorten(names[0])} {entries[0]} and "
                f"{shorten(odd)} {self.contents.entries[odd]}"
            )
        return [self.contents.array(name) for name in names]

    def option(self, name: str) -> Any:
        """An option's value: numbers and texts as such, arrays as arrays; None where there is none."""
        stored = self.options.get(name)
        if stored is None:
            return None
        if stored not in self.contents.entries:
            return self.contents.values[stored]
        entry = self.contents.entries[stored]
        if len(entry.shape) > 1 and not name.endswith("mask"):
            raise ValueError(f"{name}: expected one value, got {entry}")
        self._check_size(name, entry, MAX_ARRAY_BYTES if name.endswith("mask") else MAX_OPTION_BYTES)
        array = self.contents.array(stored)
        return array if array.ndim > 1 else array.tolist()

    def _check_size(self, name: str, entry: Entry, most: int) -> None:
        if float32_bytes(entry) > most:
            raise ValueError(f"{name}: expected at most {most >> 20:,} MiB, got {entry}")

    def tokens(self) -> list[str] | None:
        stored = self.options.get("tokens")
        if stored is None:
            return None
        if stored in self.contents.values:
            return _text_list(self.contents.values[stored])
        self._check_size("tokens", self.contents.entries[stored], MAX_TOKENS_BYTES)
        array = self.contents.array(stored)
        if array.ndim != 1 or array.dtype.kind not in "US":
            raise ValueError(f"tokens: expected texts [S], got {array.dtype} {list(array.shape)}")
        texts = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
        return [str(text) for text in texts]

    def lines(self, role: str) -> list[str]:
        """What a role is in the file, in words."""
        names = self.arrays[role]
        entry = self.contents.entries[names[0]]
        layers = f"{len(names)} layers, each " if self.numbered else ""
        return [f"{shorten(names[0]) or 'the array'}: {layers}{entry}"]


def _text_list(given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise ValueError(f"tokens: expected a list of texts, got {shorten(repr(given))}")
    return given


def named_arrays(contents: Contents) -> NamedArrays:
    """What a file's names stand for.

    Raises
    ------
    ValueError
        When a name is missing or stands for two things; the message lists what the file holds.
    """
    options = _options(contents)
    by_role: dict[str, dict[int | None, str]] = {}
    for name in contents.entries:
        if name in options.values() or (known := _role_and_layer(name)) is None:
            continue
        role, layer = known
        other = by_role.setdefault(role, {}).setdefault(layer, name)
        if other != name:
            raise _unclear(contents, f"both {shorten(other)!r} and {shorten(name)!r} can be the {role}")
    if not by_role:
        by_role = _without_names(contents, set(options.values()))
    used = ("weights",) if "weights" in by_role else tuple(by_role)
    layers = sorted({layer for role in used for layer in by_role[role] if layer is not None})
    wanted: list[int | None] = [*layers] or [None]
    for role in used:
        if set(by_role[role]) != set(wanted):
            raise _unclear(contents, f"{role} is not there for each of the layers that are")
    arrays = {role: [by_role[role][layer] for layer in wanted] for role in used}
    if "weights" not in arrays and "qkv" not in arrays:
        for role in ("query", "key"):
            if role not in arrays:
                raise ValueError(
                    f"file: array {role!r} is missing; expected {EXPECTED}, and the file has {_all(contents)}"
                )
    return NamedArrays(contents, arrays, options, layers, [role for role in by_role if role not in used])


def _unclear(contents: Contents, why: str) -> ValueError:
    return ValueError(f"file: {why}; expected {EXPECTED}, and the file has {_all(contents)}")


def _all(contents: Contents) -> str:
    parameters = sum(name.endswith((".weight", ".bias")) for name in contents.entries)
    hint = " (these look like a model's parameters, from which attention has yet to be computed)"
    return f"{contents.listed()}{hint if parameters > len(contents.entries) // 2 else ''}"


def _options(contents: Contents) -> dict[str, str]:
    """The option that each array or value is, by the option's name."""
    there = {name.lower(): name for name in (*contents.entries, *contents.values)}
    return {
        option: next(there[name] for name in (option, *others) if name in there)
        for option, others in OPTIONS.items()
        if any(name in there for name in (option, *others))
    }


def _role_and_layer(name: str) -> tuple[str, int | None] | None:
    """What an array is, and of which layer: "layers.3.attn.hook_q" is the query of layer 3."""
    words = [word for word in re.split(r"[._/\-\[\]\s]+", name.lower()) if word]
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 10]
    words = [word for word in words if not word.isdecimal()]
    if len(numbers) > 1:
        return None
    for begin in range(max(0, len(words) - _MOST_WORDS), len(words)):
        role = _ROLE_OF.get("_".join(words[begin:]))
        if role:
            return role, numbers[0] if numbers else None
    return None


def _without_names(contents: Contents, options: set[str]) -> dict[str, dict[int | None, str]]:
    """Square arrays that need no name: the only one, or the numbered ones of ``np.savez(file, *maps)``."""
    names = [name for name in contents.entries if name not in options]
    square = all(
        len(shape) >= 2 and shape[-1] == shape[-2]
        for shape in (contents.entries[name].shape for name in names)
    )
    if names and square:
        if len(names) == 1:
            return {"weights": {None: names[0]}}
        numbered: dict[int | None, str] = {
            int(name[4:]): name for name in names if re.fullmatch(r"arr_\d{1,9}", name)
        }
        if len(numbered) == len(names):
            return {"weights": numbered}
    return {}
