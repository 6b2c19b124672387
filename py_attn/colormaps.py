"""Colour maps of the heat maps: perceptually uniform, after matplotlib (CC0) and seaborn (rocket, BSD-3)."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]

#: 17 evenly spaced colours each. Interpolated linearly they differ from the full tables by at most 5 of 255.
_ANCHORS = {
    "rocket": "03051a 180f29 30173a 481c48 611f53 7b1f59 971c5b b21758 cb1b4f df2f44 ec4c3e f26b49 f58860 "
    "f6a37a f6bc99 f8d4bc faebdd",
    "magma": "000004 0a0822 1d1147 36106b 51127c 6a1c81 832681 9c2e7f b73779 d0416f e75263 f56b5c fc8961 "
    "fea772 fec488 fde2a3 fcfdbf",
    "viridis": "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 "
    "84d44b addc30 d8e219 fde725",
}
#: The colours of 0, -1 and 1 in CIELAB for each theme.
_DIVERGING = {
    "light": ((97.0, 0.0, 0.0), (46.0, 15.5, -58.0), (46.0, 25.4, 54.4)),
    "dark": ((10.0, 0.0, 0.0), (70.0, 3.8, -43.8), (70.0, 24.0, 59.3)),
}
_WHITE = np.array([0.95047, 1.0, 1.08883])
_RGB_OF_XYZ = np.array(
    [
        [3.2404542, -1.5371385, -0.4985314],
        [-0.9692660, 1.8760108, 0.0415560],
        [0.0556434, -0.2040259, 1.0572252],
    ]
)
SCALES = ("linear", "sqrt", "log")
#: The log scale spans this many decades below the maximum.
DECADES = 4.0


@functools.cache
def table(name: str) -> Pixels:
    """256 colours [256, 4] RGBA; a name that ends in ``_r`` has them in reverse order, the brightest first.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    base = name.removesuffix("_r")
    if base not in _ANCHORS:
        raise ValueError(
            f"colormap: expected one of {', '.join(_ANCHORS)} (or one of them followed by _r), got {name!r}"
        )
    anchors = np.array([list(bytes.fromhex(word)) for word in _ANCHORS[base].split()], np.float64)
    at = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(at, np.arange(len(anchors)), anchors[:, c]) for c in range(3)]
    rgba = np.stack([*channels, np.full(256, 255.0)], axis=-1).round().astype(np.uint8)
    return rgba[::-1].copy() if name.endswith("_r") else rgba


@functools.cache
def signed_table(name: str) -> Pixels:
    """511 colours [511, 4] RGBA for values from -1 to 1: blue below zero, a neutral colour, orange above.

    Straight lines in CIELAB (CIE 015:2018, D65) from the neutral colour to the two ends, which are equally
    light: equal steps look equally large, x and -x are equally light, and the two hues stay apart for people
    who do not tell red from green. The neutral colour is the background of the theme that :func:`table` is
    for: near black, or near white for a name that ends in ``_r``.
    """
    table(name)  # refuses an unknown name
    neutral, below, above = _DIVERGING["light" if name.endswith("_r") else "dark"]
    share = np.abs(np.linspace(-1, 1, 511))[:, None]
    ends = np.where(np.arange(511)[:, None] < 255, below, above)
    rgb = _srgb(neutral + share * (ends - np.array(neutral)))
    return np.concatenate([np.rint(255 * rgb), np.full((511, 1), 255.0)], axis=-1).astype(np.uint8)


def _srgb(lab: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """CIELAB [..., 3] under D65 as sRGB (IEC 61966-2-1) from 0 to 1."""
    fy = (lab[..., 0] + 16) / 116
    f = np.stack([fy + lab[..., 1] / 500, fy, fy - lab[..., 2] / 200], axis=-1)
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * _WHITE
    linear = np.clip(xyz @ _RGB_OF_XYZ.T, 0, 1)
    encoded: npt.NDArray[np.float64] = np.where(
        linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055
    )
    return encoded


def position(values: npt.ArrayLike, scale: str = "linear", maximum: float = 1.0) -> Array:
    """The positions of values from 0 to ``maximum`` on the colour scale, from 0 to 1."""
    share: Array = np.clip(np.asarray(values, np.float32) / np.float32(maximum), 0, 1)
    if scale == "sqrt":
        return np.sqrt(share)
    if scale == "log":
        with np.errstate(divide="ignore"):
            return np.clip(1 + np.log10(share) / np.float32(DECADES), 0, 1)
    if scale != "linear":
        raise ValueError(f"scale: expected one of {', '.join(SCALES)}, got {scale!r}")
    return share


def paint(values: npt.ArrayLike, colormap: str, scale: str = "linear", maximum: float = 1.0) -> Pixels:
    """Colour an array of weights: shape [..., 4], RGBA; NaN is transparent."""
    at = position(values, scale, maximum)
    return _without_nan(table(colormap)[np.rint(np.nan_to_num(at) * 255).astype(np.intp)], at)


def paint_signed(values: npt.ArrayLike, colormap: str, scale: str = "linear") -> Pixels:
    """Colour values from -1 to 1 by :func:`signed_table`: shape [..., 4], RGBA; NaN is transparent."""
    at = position(np.abs(values), scale)
    index = np.rint(np.nan_to_num(at) * 255).astype(np.intp)
    return _without_nan(signed_table(colormap)[255 + np.where(np.signbit(values), -index, index)], at)


def _without_nan(colors: Pixels, at: Array) -> Pixels:
    shown: Pixels = np.where(np.isnan(at)[..., None], np.uint8(0), colors)
    return shown


def legend(colormap: str, scale: str, *, signed: bool = False, maximum: float = 1.0) -> dict[str, object]:
    """The colours from 0 (or, ``signed``, from ``-maximum``) to ``maximum``, and numbers among them.

    Returns
    -------
    dict
        ``rgba``: uint8 [256·4]; ``ticks``: list of {"value", "at"}, of which the first and the last are the
        ends of the scale and the others are round.

    Raises
    ------
    ValueError
        For a maximum that is not a number above 0.
    """
    if not 0 < maximum < float("inf"):
        raise ValueError(f"maximum: expected a number > 0, got {maximum}")
    if maximum != 1:
        return _legend_to(colormap, scale, signed, maximum)
    if signed:
        middle = {"linear": 0.5, "sqrt": 0.25, "log": 0.01}[scale]
        signed_ticks = [
            {"value": float(v), "at": 0.5 + 0.5 * float(np.sign(v) * position(abs(v), scale))}
            for v in (-1, -middle, 0, middle, 1)
        ]
        return {"rgba": signed_table(colormap)[::2].reshape(-1), "ticks": signed_ticks}
    values = {
        "linear": [0, 0.25, 0.5, 0.75, 1],
        "sqrt": [0, 0.05, 0.25, 0.5, 1],
        "log": [1e-4, 1e-3, 0.01, 0.1, 1],
    }
    ticks = [{"value": float(v), "at": float(position(v, scale))} for v in values[scale]]
    return {"rgba": table(colormap).reshape(-1), "ticks": ticks}


def _legend_to(colormap: str, scale: str, signed: bool, maximum: float) -> dict[str, object]:
    """:func:`legend` where the maximum is not 1."""
    between = _round_ticks(scale, maximum)
    if signed:
        ticks = [
            {"value": sign * value, "at": 0.5 + 0.5 * sign * at}
            for sign, value, at in [(-1, maximum, 1.0), (1, 0.0, 0.0), (1, maximum, 1.0)]
        ]
        return {"rgba": signed_table(colormap)[::2].reshape(-1), "ticks": ticks}
    first = maximum * 10**-DECADES if scale == "log" else 0.0
    ends = [{"value": first, "at": 0.0}], [{"value": maximum, "at": 1.0}]
    return {"rgba": table(colormap).reshape(-1), "ticks": [*ends[0], *between, *ends[1]]}


def _round_ticks(scale: str, maximum: float) -> list[dict[str, float]]:
    """Numbers of one digit (1, 2 or 5) inside a scale, far enough apart that their labels do not touch."""
    top = int(np.floor(np.log10(maximum)))
    values = [
        float(f"{digit}e{ten}")
        for ten in range(top, top - 6, -1)
        for digit in ((1,) if scale == "log" else (5, 2, 1))
    ]
    chosen: list[dict[str, float]] = []
    last = 1.0
    for value in values:
        at = float(position(value, scale, maximum)) if value < maximum else 1.0
        if 0.18 <= at <= last - 0.18:
            chosen.append({"value": value, "at": at})
            last = at
    return chosen[::-1]
