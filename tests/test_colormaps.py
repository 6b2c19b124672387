"""The diverging colours of differences and gradients, measured in CIELAB."""

import numpy as np
import pytest

from py_attn.colormaps import legend, paint_signed, signed_table, table

#: Linear sRGB to XYZ under D65 (IEC 61966-2-1).
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
#: Sight without a kind of cone, in linear sRGB: Machado, Oliveira and Fernandes (2009), severity 1.
VISION = {
    "common": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
THEMES = {"light": "rocket_r", "dark": "rocket"}


def cielab(rgba, vision="common"):
    c = np.asarray(rgba, np.float64)[..., :3] / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ VISION[vision].T, 0, 1)
    t = seen @ XYZ.T / [0.95047, 1, 1.08883]
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def halves(theme, vision="common"):
    """The colours [33, 3] in CIELAB from 0 to -1, and from 0 to 1."""
    at = np.rint(255 * np.arange(33) / 32).astype(int)
    colors = cielab(signed_table(THEMES[theme]), vision)
    return colors[255 - at], colors[255 + at]


def distance(a, b):
    return np.linalg.norm(a - b, axis=-1)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", THEMES)
def test_a_number_and_its_opposite_look_different(theme, vision):
    below, above = halves(theme, vision)
    apart = distance(below, above)
    assert apart[0] == 0
    assert (np.diff(apart) > 0).all()
    assert (apart[8:] >= 20).all()  # from 0.25 on


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", THEMES)
def test_equal_steps_look_equally_large(theme, vision):
    for half in halves(theme, vision):
        steps = distance(half[1:], half[:-1])
        assert steps.max() <= 2 * steps.min()


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", THEMES)
def test_what_is_further_from_zero_is_further_from_the_background(theme, vision):
    sign = {"light": -1, "dark": 1}[theme]
    for half in halves(theme, vision):
        assert (np.diff(half[:, 0]) * sign > 0).all()


@pytest.mark.parametrize("theme", THEMES)
def test_a_number_and_its_opposite_are_equally_light(theme):
    colors = cielab(signed_table(THEMES[theme]))[:, 0]
    assert np.abs(colors - colors[::-1]).max() < 2


@pytest.mark.parametrize(("theme", "low", "high"), [("light", 94, 100), ("dark", 0, 14)])
def test_zero_is_neutral_and_near_the_background(theme, low, high):
    lightness, a, b = cielab(signed_table(THEMES[theme])[255])
    assert low <= lightness <= high
    assert np.hypot(a, b) < 1.5


def test_every_map_of_a_theme_has_the_same_diverging_colours():
    for name in ("rocket", "magma", "viridis"):
        np.testing.assert_array_equal(signed_table(name), signed_table("rocket"))
        np.testing.assert_array_equal(signed_table(f"{name}_r"), signed_table("rocket_r"))
    with pytest.raises(ValueError, match="colormap: expected one of rocket, magma, viridis"):
        signed_table("jet")


def test_the_theme_s_direction_is_that_of_the_weights():
    for name in THEMES.values():
        zero, neutral = (cielab(colors)[0] for colors in (table(name)[0], signed_table(name)[255]))
        assert abs(zero - neutral) < 15


def test_signs_are_painted_and_named():
    painted = paint_signed(np.array([-1.0, -0.25, 0, 0.25, 2, np.nan]), "magma", "sqrt")
    np.testing.assert_array_equal(painted[:5], signed_table("magma")[[0, 127, 255, 383, 510]])
    assert painted[5].tolist() == [0, 0, 0, 0]
    found = legend("magma_r", "sqrt", signed=True)
    assert found["rgba"].shape == (1024,)
    np.testing.assert_array_equal(found["rgba"].reshape(256, 4)[[0, -1]], signed_table("magma_r")[[0, -1]])
