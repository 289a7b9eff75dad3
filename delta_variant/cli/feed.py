"""The feed of earthquakes that comes with the package: its documents, its shape, and three questions."""

from __future__ import annotations

from importlib import resources

import zstandard

SHAPE = (
    "id string, geometry struct<coordinates: array<decimal(18,7)>>, "
    "properties struct<mag: decimal(18,2), magType: string, net: string, place: string, time: bigint, updated: bigint>"
)
"""The shredding schema of the demo. With shred="auto" its small files would stay plain, because plain files of this size are
smaller."""

QUESTIONS = (
    (
        "Time window: what shook between 06:00 and 12:00 UTC on 4 February 2018?",
        """
        SELECT count(*) AS quakes, max(variant_get(event, '$.properties.mag', 'decimal(4,2)')) AS strongest
        FROM {table}
        WHERE variant_get(event, '$.properties.time', 'bigint')
              BETWEEN unix_millis(TIMESTAMP '2018-02-04 06:00:00Z') AND unix_millis(TIMESTAMP '2018-02-04 12:00:00Z')""",
    ),
    (
        "Magnitude: which were the strongest, from 6 up?",
        """
        SELECT timestamp_millis(event:properties.time::bigint) AS at, event:properties.mag::decimal(4,2) AS mag,
               event:properties.place::string AS place
        FROM {table}
        WHERE event:properties.mag::decimal(4,2) >= 6.0 ORDER BY mag DESC, at""",
    ),
    (
        "Region by network: what did the University of Utah (uu) locate on the first two days?",
        """
        SELECT event:properties.magType::string AS scale, count(*) AS quakes,
               max(event:properties.mag::decimal(4,2)) AS strongest
        FROM {table}
        WHERE event:properties.net::string = 'uu'
              AND event:properties.time::bigint < unix_millis(TIMESTAMP '2018-02-02 00:00:00Z')
        GROUP BY scale ORDER BY quakes DESC""",
    ),
)
"""Titles and SQL texts, in which {table} stands for the table."""


def documents() -> list[str]:
    """The JSON texts of all earthquakes."""
    packed = resources.files("delta_variant").joinpath("data/earthquakes.ndjson.zst").read_bytes()
    return zstandard.ZstdDecompressor().decompress(packed).decode().splitlines()
