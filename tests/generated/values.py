"""The values at a path of a generated table: its type, and where each value stands among the others."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from delta_variant.paths import object_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_variant.paths import Keys


POSITIONS = 180
_MOMENTS = [
    dt.datetime(1, 1, 1, 0, 5),
    dt.datetime(1582, 10, 3, 22, 10),  # the last days of the Julian calendar
    dt.datetime(1883, 11, 18, 16, 20),  # New York leaves its local mean time
    dt.datetime(1970, 1, 1),
    dt.datetime(2006, 10, 29, 1, 40),  # St John's sets its clocks back a minute after midnight, across the date
    dt.datetime(2024, 3, 10, 5, 50),  # New York, an hour that is not there
    dt.datetime(2024, 11, 3, 4, 30),  # New York, an hour that is there twice
    dt.datetime(2024, 12, 31, 12),
    dt.datetime(9999, 12, 31, 19, 30),
]
_STEPS = POSITIONS // len(_MOMENTS)
SCALES = [1, 3, 250, 40_000, 10**8, 5 * 10**16]
_FAR_DATES = [np.datetime64("-0044-03-15"), np.datetime64("12024-02-29"), dt.date(1582, 10, 4), dt.date(1582, 10, 15)]
_INSTANTS = [dt.datetime.min, dt.datetime.max, dt.datetime(1500, 2, 28, 23, 59, 59, 999999), dt.datetime(2024, 3, 10, 2, 30)]
_INTEGERS = [0, -1, 127, 128, -129, 2**15, 2**24 + 1, -(2**31) - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
EXTREMES: dict[str, list[Any]] = {
    "int": _INTEGERS,
    "exact": [Decimal("9" * 38), Decimal("-0." + "9" * 38), Decimal("1E-20"), Decimal("5.00"), Decimal("5.05"), 5, *_INTEGERS],
    "double": [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7e308, 3.5e38, 16777217.0, 2.0**63, 5.0],
    "float": [np.float32(x) for x in (math.nan, math.inf, -math.inf, -0.0, 1e-45, 3.4e38, 0.1, 5)],
    "string": ["", " ", "\0", "A", "a", "é", "\uffff", "\U0010ffff" * 3, "\U0010ffff" * 33, "z" * 40, "k" * 5000, "5", " 5 "]
    + ["5.0", "1e3", "NaN", "true", "2024-03-10", "2006-10-29 00:00:30", "%", "_", "it's", "back\\slash", "k0%"],
    "spelled": [
        "0001-01-01T00:00:00+18:00",
        "9999-12-31 23:59:59.9999999-18:00",
        "2024-02-29",
        "2023-02-29",
        "0000-01-01",
        "soon",
    ]
    + [
        "2024-11-21T24:00:00Z",
        "2024-11-21T23:59:60Z",
        "2024-11-21T16:09:37z",
        " 2024-11-21",
        "2024-11-21T16:09",
        "12024-02-29",
    ],
    "date": [dt.date.min, dt.date.max, *_FAR_DATES],
    "timestamp": [moment.replace(tzinfo=dt.timezone.utc) for moment in _INSTANTS],
    "timestamp_ntz": _INSTANTS,
    "boolean": [True, False],
    "binary": [b"", b"\xff" * 40, b"\0"],
}
KINDS = list(EXTREMES)
OTHERS: list[Any] = [{}, {"x": 5}, [], [5], [{"x": 1}], True, "other", 5, 7.25, "x" * 5000]
STYLES: dict[str, Callable[[int, Spot], str]] = {
    "short": lambda at, spot: f"k{at:03d}",
    "cut": lambda at, spot: f"thirty characters to start with{at:03d} and more"[: 31 if at % 3 == 0 else None],
    "number": lambda at, spot: str((at - 90) * spot.scale),
    "moment": lambda at, spot: str(spot.moment(at)),
    "wide": lambda at, spot: chr(0x3A9 + at) * (1 + at % 40),
    "astral": lambda at, spot: "\ud7ff\U00010000\U0010ffff\uffff"[at // 45] + f"{at:03d}",
}
SPELLINGS: dict[str, Callable[[random.Random, dt.datetime], str]] = {
    "zero": lambda rng, at: at.isoformat(rng.choice("T ")) + rng.choice(["Z", "Z", ".25Z", ".1234567Z", "+00:00", " UTC"]),
    "offset": lambda rng, at: at.isoformat(rng.choice("T ")) + rng.choice(["Z", "+05:45", "-0330", "+18", "-18:00"]),
    "local": lambda rng, at: at.isoformat(rng.choice("T ")) + rng.choice(["", "", ".5"]),
    "date": lambda rng, at: str(at.date()),
    "any": lambda rng, at: at.isoformat() + rng.choice(["", "Z"]),
}


@dataclass(frozen=True)
class Spot:
    """A path of a table. Each kind has a value for each position from 0 to 179, ascending if the kind has an order."""

    column: str
    keys: Keys
    kind: str
    scale: int
    minutes: int
    style: str
    spelling: str

    @property
    def is_element(self) -> bool:
        """Whether the path goes through an array. Such paths have neither bounds nor an index."""
        return object_keys(self.keys) is None

    def moment(self, at: int) -> dt.datetime:
        return _MOMENTS[at // _STEPS] + dt.timedelta(minutes=self.minutes * (at % _STEPS))

    def value(self, rng: random.Random, kind: str, at: int) -> Any:
        number = (at - 90) * self.scale
        match kind:
            case "int":
                return number
            case "exact":
                return rng.choice([number, Decimal(number) + Decimal(rng.randrange(1000)).scaleb(-rng.randrange(4))])
            case "double":
                return number + rng.choice([0.0, 0.1, 0.25])
            case "float":
                return np.float32(number + rng.choice([0.0, 0.1, 0.25]))
            case "string":
                return STYLES[self.style](at, self)
            case "spelled":
                return SPELLINGS[self.spelling](rng, self.moment(at))
            case "date":
                return self.moment(at).date()
            case "timestamp":
                return self.moment(at).replace(tzinfo=dt.timezone.utc)
            case "timestamp_ntz":
                return self.moment(at)
            case "boolean":
                return at >= POSITIONS // 2
        return bytes([at])

    def any(self, rng: random.Random, kind: str) -> Any:
        return rng.choice(EXTREMES[kind]) if rng.random() < 0.15 else self.value(rng, kind, rng.randrange(POSITIONS))
