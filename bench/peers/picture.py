"""Figures as pictures: bars for the comparison, lines for the growth curves. SVG, written by hand."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from bench.peers.figures import P50, Figures
from bench.peers.systems import SYSTEMS, PeerSystem
from bench.peers.tables import NAMES, NONE

STYLE: Final = """
text { font: 11px system-ui, sans-serif; fill: #2e3436 }
.title { font-size: 14px; font-weight: 600 }
.head { font-weight: 600 }
.own { font-weight: 600 }
.axis { stroke: #babdb6; stroke-width: 1 }
.grid { stroke: #eeeeec; stroke-width: 1 }
.mid { text-anchor: middle }
.end { text-anchor: end }
"""
OWN, DURABLE, OTHER = "#3465a4", "#4e9a06", "#babdb6"

_COLUMNS: Final = 3
_PANEL_WIDTH, _LABEL_WIDTH, _VALUE_WIDTH = 350, 150, 52
_BAR_HEIGHT, _PANEL_TOP, _GAP = 16, 26, 22
_TOP: Final = 54


def bars(found: Figures, title: str) -> str:
    """A panel for each quantity, a bar for each system; longer is better, but for times shorter is."""
    panels = [(name, text) for name, text in NAMES.items() if any(name in of for of in found.values())]
    shown = [system for system in SYSTEMS if system.key in found]
    panel_height = _PANEL_TOP + _BAR_HEIGHT * len(shown) + _GAP
    width = _COLUMNS * _PANEL_WIDTH + 10
    height = _TOP + panel_height * math.ceil(len(panels) / _COLUMNS)
    parts = [*_head(width, height, title), *_colour_key(10, 40)]
    for place, (name, text) in enumerate(panels):
        x = 10 + place % _COLUMNS * _PANEL_WIDTH
        y = _TOP + place // _COLUMNS * panel_height
        unit = "ms, less is better" if name == P50 else "jobs/s"
        values = {system: found[system.key][name].median for system in shown if name in found[system.key]}
        parts += _panel(x, y, f"{text} ({unit})", shown, values, digits=2 if name == P50 else 0)
    return "\n".join([*parts, "</svg>\n"])


def _head(width: int, height: int, title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="title" x="10" y="20">{escape(title)}</text>',
    ]


def _colour_key(x: int, y: int) -> list[str]:
    parts = []
    for colour, text in (
        (OWN, "Stoker (durable)"),
        (DURABLE, "durable peer"),
        (OTHER, "peer that is not durable"),
    ):
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="{y}">{text}</text>')
        x += 140
    return parts


def _panel(
    x: int,
    y: int,
    head: str,
    systems: Sequence[PeerSystem],
    values: Mapping[PeerSystem, float],
    digits: int,
) -> list[str]:
    parts = [f'<text class="head" x="{x}" y="{y + 14}">{escape(head)}</text>']
    longest = max(values.values())
    room = _PANEL_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH - 10
    for row, system in enumerate(systems):
        top = y + _PANEL_TOP + row * _BAR_HEIGHT
        own = ' class="own"' if system.is_stoker else ""
        parts.append(f'<text{own} x="{x}" y="{top + 10}">{escape(system.title)}</text>')
        if system not in values:
            parts.append(f'<text x="{x + _LABEL_WIDTH}" y="{top + 10}">{NONE}</text>')
            continue
        length = max(room * values[system] / longest, 1.0)
        parts.append(
            f'<rect x="{x + _LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{_BAR_HEIGHT - 4}" '
            f'fill="{_colour(system)}"/>'
        )
        parts.append(
            f'<text x="{x + _LABEL_WIDTH + length + 4:.1f}" y="{top + 10}">{values[system]:,.{digits}f}</text>'
        )
    return parts


def _colour(system: PeerSystem) -> str:
    if system.is_stoker:
        return OWN
    return DURABLE if system.durable else OTHER


class Curve(msgspec.Struct, frozen=True):
    """A quantity against a size that grows: points of (size, value)."""

    name: str
    points: Sequence[tuple[float, float]]


class Plot(msgspec.Struct, frozen=True):
    """Curves over one logarithmic axis. `unit` is that of the values, which begin at 0."""

    title: str
    unit: str
    curves: Sequence[Curve]


_PLOT_WIDTH, _PLOT_HEIGHT, _PLOT_LEFT, _PLOT_BOTTOM = 320, 150, 52, 34
COLOURS: Final = ("#3465a4", "#c17d11", "#75507b", "#4e9a06")


def lines(plots: Sequence[Plot], title: str, columns: int = 2) -> str:
    """A panel for each plot, in rows of `columns`."""
    width = columns * (_PLOT_WIDTH + 20) + 10
    panel_height = _PANEL_TOP + _PLOT_HEIGHT + _PLOT_BOTTOM
    height = _TOP + panel_height * math.ceil(len(plots) / columns)
    names = list(dict.fromkeys(curve.name for plot in plots for curve in plot.curves))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    parts = _head(width, height, title)
    for place, name in enumerate(names):
        parts.append(f'<rect x="{10 + 120 * place}" y="31" width="10" height="10" fill="{colours[name]}"/>')
        parts.append(f'<text x="{25 + 120 * place}" y="40">{escape(name)}</text>')
    for place, plot in enumerate(plots):
        x = 10 + place % columns * (_PLOT_WIDTH + 20)
        parts += _plot(x, _TOP + place // columns * panel_height, plot, colours)
    return "\n".join([*parts, "</svg>\n"])


def _plot(x: int, y: int, plot: Plot, colours: Mapping[str, str]) -> list[str]:
    sizes = sorted({size for curve in plot.curves for size, _ in curve.points})
    highest = max(value for curve in plot.curves for _, value in curve.points) or 1.0
    left, top = x + _PLOT_LEFT, y + _PANEL_TOP
    room = _PLOT_WIDTH - _PLOT_LEFT - 10
    low, high = math.log10(sizes[0]), math.log10(sizes[-1])

    def across(size: float) -> float:
        return left + (room * (math.log10(size) - low) / (high - low) if high > low else room / 2)

    def down(value: float) -> float:
        return top + _PLOT_HEIGHT * (1 - value / highest / 1.05)

    parts = [f'<text class="head" x="{x}" y="{y + 14}">{escape(plot.title)} ({escape(plot.unit)})</text>']
    for share in (0.0, 0.5, 1.0):
        level = highest * share
        parts.append(
            f'<line class="grid" x1="{left}" y1="{down(level):.1f}" x2="{left + room}" y2="{down(level):.1f}"/>'
        )
        parts.append(f'<text class="end" x="{left - 5}" y="{down(level) + 4:.1f}">{_short(level)}</text>')
    parts += [
        f'<text class="mid" x="{across(size):.1f}" y="{top + _PLOT_HEIGHT + 16}">{_short(size)}</text>'
        for size in sizes
    ]
    for curve in plot.curves:
        points = " ".join(f"{across(size):.1f},{down(value):.1f}" for size, value in curve.points)
        colour = colours[curve.name]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{across(size):.1f}" cy="{down(value):.1f}" r="2.5" fill="{colour}"/>'
            for size, value in curve.points
        ]
    return parts


def _short(value: float) -> str:
    """A number for an axis: 1,500 is 1.5k, 1,000,000 is 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
