"""What Python and the JVM share beside messages: session settings, and the names of tags. Pure.

`jars` puts them into the JAR, where `scala/Resources.scala` reads them.
"""

PREVIEW_NAMES = "spark.databricks.delta.variantShredding.forceUsePreviewTableFeature"
"""Unless this is off, Delta gives tables that it creates the feature under the preview's name."""
SETTINGS = {"spark.databricks.delta.variantShredding.parseFooterForStats": "true", PREVIEW_NAMES: "false"}
"""Settings that replace the user's. With them delta-spark collects Variant bounds, and calls the feature `variantShredding`. By
default it does neither."""
READS_SHREDDED = "spark.sql.variant.allowReadingShredded"
DEFAULTS = {"spark.databricks.delta.stats.limitPerVariant": "100", READS_SHREDDED: "true"}
"""Settings for the same purpose that stay as the user has set them. By default Spark 4.0 refuses to read shredded files."""

BOUNDS_TAG = "delta_variant.bounds"
"""The tag of an Add whose Variant bounds this package computed from the values."""
BOUNDS_TAG_VALUE = "1"
TYPED_TAG_VALUE = "2"
"""Replaces BOUNDS_TAG_VALUE if all values of the paths with bounds are in `typed_value`, in the type of the bounds, and if
readers that look columns up by name without regard to case find the right one."""
BOUNDS_TAG_VALUES = (BOUNDS_TAG_VALUE, TYPED_TAG_VALUE)
NONNULL_TAG = "delta_variant.nonnull"
TIMES_TAG = "delta_variant.times"
