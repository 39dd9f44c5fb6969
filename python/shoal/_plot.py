"""Charts as SVG, written by hand: readable on light and on dark pages, with no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "Bars", "Line", "Lines", "chart"]

# Colours with enough contrast on white and on near-black alike; the background stays the page's.
TEXT, FAINT, GRID = "#6e7781", "#848d97", "#8c959f"
OURS, PEER = "#1a9e96", "#8c959f"
PEERS = ("#8c959f", "#c9822b", "#8a63d2", "#4184e4")

WIDTH, MARGIN, HEADER, FOOTER, GAP = 760, 12, 60, 12, 26
PLOT_HEIGHT, LEFT, RIGHT = 230, 64, 170
ROW, BAR, LABELS, FIGURES = 24, 15, 178, 76


@dataclass(frozen=True, slots=True)
class Line:
    """Nanoseconds an instance by number of instances."""

    label: str
    points: Sequence[tuple[int, float]]
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    title: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
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


def rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GRID}" stroke-opacity="0.3"/>'


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis from one pixel to another."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """As much of it as the values need, and a tenth of a decade on either side."""
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        return cls(min(logs) - 0.1, max(logs) + 0.1, start, end)

    def place(self, value: float) -> float:
        return self.start + (self.end - self.start) * (math.log10(value) - self.low) / (self.high - self.low)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(math.ceil(self.low), math.floor(self.high) + 1)]


def spread(wanted: Sequence[float], room: float) -> list[float]:
    """Places as near as can be to those wanted, in the same order, and none nearer than `room` to the next.

    >>> spread([10.0, 11.0, 50.0], 10.0)
    [5.5, 15.5, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    # Labels that touch stand together around the middle of what they want.
    blocks: list[list[int]] = []
    starts: list[float] = []
    for k in order:
        blocks.append([k])
        starts.append(wanted[k])
        while len(blocks) > 1 and starts[-2] + room * len(blocks[-2]) > starts[-1]:
            last = blocks.pop()
            starts.pop()
            blocks[-1] += last
            block = blocks[-1]
            starts[-1] = sum(wanted[k] - room * place for place, k in enumerate(block)) / len(block)
    places = [0.0] * len(wanted)
    for start, block in zip(starts, blocks, strict=True):
        for place, k in enumerate(block):
            places[k] = start + room * place
    return places


def draw_lines(top: float, panel: Lines) -> tuple[list[str], float]:
    """Time by size on two logarithmic axes; the name and the last figure of each line stand at its end."""
    parts = [text(MARGIN, top + 14, panel.title, size=13, extra='font-weight="600"')]
    top += GAP + 4
    bottom = top + PLOT_HEIGHT
    points = [point for line in panel.lines for point in line.points]
    across = Axis.over([count for count, _ in points], LEFT, WIDTH - RIGHT)
    up = Axis.over([time for _, time in points], bottom, top)
    for value in up.decades():
        y = up.place(value)
        parts += [
            rule(LEFT, y, WIDTH - RIGHT, y),
            text(LEFT - 8, y + 4, duration(value), anchor="end", size=11),
        ]
    for value in across.decades():
        parts.append(text(across.place(value), bottom + 17, f"{value:,.0f}", anchor="middle", size=11))
    ends = spread([up.place(line.points[-1][1]) for line in panel.lines], 15)
    colours = iter(PEERS * len(panel.lines))
    drawn = []
    for line, end in zip(panel.lines, ends, strict=True):
        colour, width, weight = (OURS, 3.0, 'font-weight="600"') if line.ours else (next(colours), 1.75, "")
        places = [(across.place(count), up.place(time)) for count, time in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        shape = [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'
        ]
        shape += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{width + 0.75}" fill="{colour}"/>' for x, y in places]
        x = places[-1][0] + 12
        label = f"{line.label} {duration(line.points[-1][1])}"
        shape.append(text(x, end + 4, label, extra=f'{weight} style="fill:{colour}"'))
        drawn.append((line.ours, shape))
    for _, shape in sorted(drawn, key=lambda one: one[0]):
        parts += shape
    return parts, bottom + 24


def draw_bars(top: float, panel: Bars) -> tuple[list[str], float]:
    """Times on a logarithmic axis, shorter is better."""
    parts = [text(MARGIN, top + 14, panel.title, size=13, extra='font-weight="600"')]
    top += GAP
    bottom = top + ROW * len(panel.bars)
    axis = Axis.over([bar.value for bar in panel.bars], LABELS, WIDTH - FIGURES)
    # From the decade below the shortest, so that this one can be seen.
    axis = Axis(math.floor(axis.low), axis.high, LABELS, WIDTH - FIGURES)
    for value in axis.decades():
        x = axis.place(value)
        parts += [
            rule(x, top - 4, x, bottom),
            text(x, bottom + 14, duration(value), anchor="middle", size=11),
        ]
    for place, bar in enumerate(panel.bars):
        y = top + ROW * place
        weight = 'font-weight="600"' if bar.ours else ""
        length = max(1.0, axis.place(bar.value) - LABELS) if bar.value > 0 else 1.0
        colour = OURS if bar.ours else PEER
        style = f'{weight} style="fill:{OURS}"' if bar.ours else ""
        parts += [
            text(LABELS - 10, y + BAR - 3, bar.label, anchor="end", extra=style),
            f'<rect x="{LABELS}" y="{y:.1f}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
            text(LABELS + length + 7, y + BAR - 3, duration(bar.value), extra=style),
        ]
    return parts, bottom + 18


def chart(title: str, subtitle: str, lines: Lines, bars: Bars) -> str:
    """Lines above bars; what is Shoal's has a colour of its own. A panel without figures is left out.

    >>> drawn = chart("Cost", "", Lines("native", [Line("Shoal", [(10, 2.0)], ours=True)]), Bars("Python", []))
    >>> drawn.startswith("<svg") and "Shoal 2 ns" in drawn and "Python" not in drawn
    True
    """
    parts: list[str] = []
    y = float(HEADER)
    if lines.lines:
        drawn, y = draw_lines(y, lines)
        parts += drawn
        y += GAP / 2
    if bars.bars:
        drawn, y = draw_bars(y, bars)
        parts += drawn
    height = math.ceil(y + FOOTER)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" fill="{TEXT}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(subtitle)}</desc>",
        text(MARGIN, 24, title, size=17, extra='font-weight="600"'),
        text(MARGIN, 44, subtitle, extra=f'style="fill:{FAINT}"'),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"
