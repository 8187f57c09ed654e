"""How figures look, and how a drawing becomes a PNG, and an SVG that follows the page into the dark."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # matplotlib takes a second to import: only when something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Grid = Sequence[Sequence[Axes]]

PALETTE: Mapping[str, tuple[str, str]] = {
    "ink": ("#1d2733", "#e6ebf1"),
    "muted": ("#5b6775", "#a3afbc"),
    "grid": ("#d8dde4", "#37424f"),
    "on-colour": ("#fefefe", "#11171e"),
    "card": ("#fffffe", "#1a2129"),
    "blue": ("#2b66ad", "#6ea9ec"),
    "orange": ("#cf6f1e", "#f0a05c"),
    "green": ("#2a8463", "#5cc39d"),
    "purple": ("#7a52ad", "#b797e3"),
    "red": ("#bf4437", "#f0837a"),
    "cyan": ("#1f8aa3", "#5cc3da"),
    "pale": ("#a3c3e6", "#3f628c"),
    "grey": ("#a4aeb9", "#6f7b88"),
}
"""Name -> (in light, in dark). Drawn in the light colours; the page replaces them by CSS variables."""

SERIES = ("blue", "orange", "green", "purple", "red", "cyan")
"""Colours of curves, told apart by people who see fewer colours as well; more curves change the dash too."""
DASHES = ("-", "--", "-.", ":")
WHISKER: Mapping[str, Any] = {
    "color": PALETTE["ink"][0],
    "capsize": 2.5,
    "elinewidth": 1,
    "capthick": 1,
    "fmt": "none",
}
"""Of an errorbar: how far the quartiles are."""
PLATE: Mapping[str, Any] = {
    "boxstyle": "square,pad=0.12",
    "facecolor": PALETTE["card"][0],
    "edgecolor": "none",
}
"""Behind a number that lines may cross."""

_RC: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.edgecolor": PALETTE["muted"][0],
    "axes.labelcolor": PALETTE["ink"][0],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "grid.color": PALETTE["grid"][0],
    "grid.linewidth": 0.7,
    "text.color": PALETTE["ink"][0],
    "text.parse_math": False,  # names are written by users, and a $ in one is a $
    "xtick.color": PALETTE["muted"][0],
    "ytick.color": PALETTE["muted"][0],
    "xtick.labelcolor": PALETTE["ink"][0],
    "ytick.labelcolor": PALETTE["ink"][0],
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",  # text stays text: it can be searched and copied
}
WIDTH = 7.8
"""Inches of a figure of usual width."""


@dataclass(frozen=True)
class Picture:
    """A finished figure."""

    slug: str
    """Name of the PNG without its ending; unique in a report."""
    heading: str
    caption: str
    svg: str
    """An <svg> element to be put into the page."""
    png: bytes


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure of that many inches with one pair of axes, in our style whatever the user's own settings."""
    with panels(width, height, 1, 1) as (figure, ((axes,),)):
        yield figure, axes


@contextmanager
def panels(width: float, height: float, rows: int, columns: int) -> Iterator[tuple[Figure, Grid]]:
    """The same with rows of panels on the same axes; only the outer ones have numbers beside them."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", dict(_RC)]), warnings.catch_warnings():
        # A label in a script that the font lacks is drawn as boxes in the PNG and right in the page.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        figure = Figure(figsize=(width, height))
        yield figure, figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).tolist()


def picture(figure: Figure, *, slug: str, heading: str, caption: str) -> Picture:
    """The figure as PNG and SVG, the same bytes for the same data. Called inside of drawing()."""
    import matplotlib

    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    with matplotlib.rc_context({"svg.hashsalt": slug}):
        figure.savefig(svg, format="svg", transparent=True)
    element = _for_page(svg.getvalue(), slug, caption)
    if figure.get_figwidth() > 1.3 * WIDTH:
        # Shrunk to the page's width its words would be too small; it can be scrolled instead.
        element = element.replace("<svg ", '<svg class="wide" ', 1)
    return Picture(slug, heading, caption, element, png.getvalue())


def curve(number: int) -> dict[str, Any]:
    """Colour and dash of the curve of that number."""
    return {
        "color": PALETTE[SERIES[number % len(SERIES)]][0],
        "linestyle": DASHES[number // len(SERIES) % len(DASHES)],
    }


def css_variables(dark: bool) -> str:
    """The palette as CSS declarations."""
    return " ".join(f"--{name}: {colours[dark]};" for name, colours in PALETTE.items())


def _for_page(svg: str, slug: str, caption: str) -> str:
    from markupsafe import escape

    # Several figures share a page: their ids must differ. Metadata (the date) and name spaces are for files.
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r' xmlns(:xlink)?="[^"]*"', "", element)
    element = element.replace("xlink:href", "href")
    element = re.sub(r'\bid="([^"]+)"', rf'id="{slug}-\1"', element)
    element = re.sub(r"url\(#([^)]+)\)", rf"url(#{slug}-\1)", element)
    element = re.sub(r'href="#([^"]+)"', rf'href="#{slug}-\1"', element)
    for name, (light, _) in PALETTE.items():
        element = element.replace(light, f"var(--{name})")
    return element.replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1).strip()
