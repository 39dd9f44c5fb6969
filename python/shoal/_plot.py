"""Bar charts as SVG, written by hand: readable on light and on dark pages, with no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "Group", "bar_chart"]

# Colours with enough contrast on white and on near-black alike; the background stays the page's.
TEXT, FAINT, GRID = "#6e7781", "#848d97", "#8c959f"
OURS, PEER = "#1a9e96", "#8c959f"

WIDTH, LABELS, FIGURES = 760, 210, 84
ROW, BAR, HEADER, GROUP_GAP = 24, 15, 64, 40


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    bars: Sequence[Bar]


def duration(nanoseconds: float) -> str:
    """A time in three digits and the unit that fits.

    >>> duration(0.39), duration(45.67), duration(20_700.0), duration(1e9)
    ('0.39 ns', '45.7 ns', '20.7 µs', '1 s')
    """
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def text(x: float, y: float, content: str, *, anchor: str = "start", size: int = 12, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{escape(content)}</text>'


def bar_chart(title: str, subtitle: str, groups: Sequence[Group]) -> str:
    """Horizontal bars of nanoseconds on a logarithmic axis, shorter is better; our own bars have a colour of their own.

    >>> chart = bar_chart("Cost", "", [Group("native", [Bar("loop", 1.0), Bar("Shoal", 2.0, ours=True)])])
    >>> chart.startswith("<svg") and "Shoal" in chart
    True
    """
    values = [bar.value for group in groups for bar in group.bars if bar.value > 0]
    low = math.floor(math.log10(min(values))) if values else 0
    high = math.ceil(math.log10(max(values))) if values else 1
    high = max(high, low + 1)
    room = WIDTH - LABELS - FIGURES

    def place(value: float) -> float:
        """How long a bar of this value is; a tenth of a decade is left so that the smallest can be seen."""
        return room * (math.log10(value) - low + 0.1) / (high - low + 0.1)

    height = HEADER + sum(GROUP_GAP + ROW * len(group.bars) for group in groups) + 34
    bottom = height - 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" fill="{TEXT}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(subtitle)}</desc>",
        text(12, 26, title, size=17, extra='font-weight="600"'),
        text(12, 46, subtitle, extra=f'fill="{FAINT}"'),
    ]
    for power in range(low, high + 1):
        x = LABELS + place(10.0**power)
        parts.append(
            f'<line x1="{x:.1f}" y1="{HEADER}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}" stroke-opacity="0.3"/>'
        )
        parts.append(text(x, bottom + 16, duration(10.0**power), anchor="middle", size=11))
    y = float(HEADER)
    for group in groups:
        parts.append(text(12, y + 26, group.title, size=13, extra='font-weight="600"'))
        y += GROUP_GAP
        for bar in group.bars:
            weight = 'font-weight="600"' if bar.ours else ""
            length = max(1.0, place(bar.value)) if bar.value > 0 else 1.0
            middle = y + BAR - 3
            parts.append(text(LABELS - 10, middle, bar.label, anchor="end", extra=weight))
            parts.append(
                f'<rect x="{LABELS}" y="{y:.1f}" width="{length:.1f}" height="{BAR}" rx="2" '
                f'fill="{OURS if bar.ours else PEER}"/>'
            )
            parts.append(text(LABELS + length + 7, middle, duration(bar.value), extra=weight))
            y += ROW
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
