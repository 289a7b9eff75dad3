"""What `enable` changes in a session."""

from __future__ import annotations

from delta_variant import jvm

PREFIX = "spark.databricks.delta."
LIMIT = PREFIX + "stats.limitPerVariant"
SETTINGS = [LIMIT, PREFIX + "variantShredding.parseFooterForStats", PREFIX + "variantShredding.forceUsePreviewTableFeature"]


def settings(spark):
    return [spark.conf.get(key, None) for key in SETTINGS]


def rules(spark):
    return [rule.ruleName() for rule in jvm.items(spark._jsparkSession.experimental().extraOptimizations())]
