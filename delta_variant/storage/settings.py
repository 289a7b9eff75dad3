"""Hadoop's settings for one location, and the refusal of those that files written by pyarrow would not follow.

In: a function that looks up one setting, the names of all known settings, and the patterns for the names of one connector,
the more specific first (`fs.s3a.bucket.lake.{}`, `fs.s3a.{}`). Out: values by the short name.

Invariant: messages name settings but show no values, unless the value is the name of a class or of an authentication type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from delta_variant.errors import TableError, UnsupportedFeatureError

Setting = Callable[[str], str | None]


# Hadoop's Configuration.getTimeDuration.
_DURATION = re.compile(r"(\d+)\s*(ns|us|ms|s|m|h|d)?")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Settings:
    """The settings of one connector for one location. Methods take short names: `access.key` for `fs.s3a.access.key`."""

    location: str
    """The location as messages show it."""
    find: Setting = field(repr=False)
    """Returns the value of a setting by its full name, or None."""
    names: Collection[str] = field(repr=False)
    """The full names of all settings, including those of other connectors; empty if they cannot be listed."""
    forms: tuple[str, ...]
    """The full names of a setting, the most specific first; {} stands for the short name."""

    def get(self, name: str) -> str | None:
        """The trimmed value of the first form that is set, even if it is empty; None if none is set."""
        return next((value.strip() for form in self.forms if (value := self.find(form.format(name))) is not None), None)

    def key(self, name: str) -> str:
        """The full name under which a setting is set, or else its most general form."""
        return next(
            (form.format(name) for form in self.forms if self.find(form.format(name)) is not None), self.forms[-1].format(name)
        )

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean, read as by Hadoop: anything but true and false is the default."""
        value = (self.get(name) or "").lower()
        return value == "true" if value in ("true", "false") else default

    def number(self, name: str) -> int | None:
        """An integer; None if it is not set. Raises TableError for anything else."""
        value = self.get(name)
        if not value:
            return None
        if not re.fullmatch(r"-?\d+", value):
            raise TableError(f"{self.key(name)}, a setting for {self.location}, is not an integer such as 20")
        return int(value)

    def seconds(self, name: str, unit: str = "ms") -> float | None:
        """A duration in seconds; None if it is not set. A number alone is in `unit`. Raises TableError for anything else."""
        value = self.get(name)
        if not value:
            return None
        found = _DURATION.fullmatch(value.lower())
        if found is None:
            raise TableError(f"{self.key(name)}, a setting for {self.location}, is not a duration such as 30s")
        return int(found[1]) * _SECONDS[found[2] or unit]

    def refused(self, name: str, advice: str, *, shown: bool = False) -> UnsupportedFeatureError:
        """The error for a setting that cannot be followed. advice: what to do instead. shown: whether to show the value."""
        value = f" = {self.get(name)}" if shown else ""
        return UnsupportedFeatureError(
            f"{self.key(name)}{value} is set for {self.location}, and delta_variant.write cannot follow it: {advice}, or write "
            "with DataFrame.write.format('delta') instead"
        )

    def refuse(self, refused: Mapping[str, tuple[str, str]]) -> None:
        """Raises UnsupportedFeatureError for the first of these settings that is set.

        refused: for each name, the value that changes nothing and is allowed, and the advice for the message.
        """
        for name, (harmless, advice) in refused.items():
            if (self.get(name) or harmless).lower() != harmless.lower():
                raise self.refused(name, advice)

    def refuse_unknown(self, known: Iterable[str], pattern: re.Pattern[str], advice: str) -> None:
        """Raises UnsupportedFeatureError for a setting that is not known and whose name suggests that it matters.

        known: names, which may end in `*`. pattern: matches sensitive names. advice: for the message.
        """
        known = tuple(known)
        exact, open_ended = frozenset(known), tuple(name[:-1] for name in known if name.endswith("*"))
        for full in sorted(self.names):
            name = self._short(full)
            if name is None or name in exact or name.startswith(open_ended):
                continue
            if name.endswith(tuple(f".{known_name}" for known_name in exact)):  # of a bucket whose name begins with this one's
                continue
            if pattern.search(name) and self.find(full):
                raise self.refused(name, advice)

    def _short(self, full: str) -> str | None:
        """The short name of a setting, by the first form that its full name has; None if it has none."""
        for form in self.forms:
            start, _, end = form.partition("{}")
            if full.startswith(start) and full.endswith(end) and len(full) > len(start) + len(end):
                return full[len(start) : len(full) - len(end)]
        return None
