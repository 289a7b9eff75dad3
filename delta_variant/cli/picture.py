"""Ranges of files as text: one line for each file, a bar from its smallest to its largest value. Pure.

In: the ranges of a path, as numbers. Out: lines. Overlaps are bars one above the other. `VariantTable.plot` draws the same with
matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence

_LEFT_HALF, _RIGHT_HALF, _WHOLE = "▌", "▐", "█"
LINES = 24


def picture(ranges: Sequence[tuple[float, float]], width: int = 60) -> list[str]:
    """The lines of a picture, the range with the smallest values first; no more than 24 of many ranges, evenly chosen.

    width: the characters of a line. Each has two halves, and a bar fills all halves that it touches.

    >>> picture([(0, 4), (4, 8)], 4)
    ['██▌ ', '  ██']
    """
    if not ranges:
        return []
    chosen = sorted(ranges)
    if len(chosen) > LINES:
        chosen = [chosen[i * (len(chosen) - 1) // (LINES - 1)] for i in range(LINES)]
    first, last = min(low for low, _ in ranges), max(high for _, high in ranges)
    scale = 2 * width / (last - first) if last > first else 0.0
    halves = [[min(2 * width - 1, int((end - first) * scale)) for end in both] for both in chosen]
    return [_line(low, high, width) for low, high in halves]


def _line(low: int, high: int, width: int) -> str:
    """A bar over the halves from `low` to `high`, both included."""
    halves = [low <= half <= high for half in range(2 * width)]
    signs = {(True, True): _WHOLE, (True, False): _LEFT_HALF, (False, True): _RIGHT_HALF, (False, False): " "}
    return "".join(signs[halves[i], halves[i + 1]] for i in range(0, 2 * width, 2))
