"""Write one group from several partitions, in ways in which a user may come to that, and print what each write raises.

Arguments: the sink's options as JSON. Around what a write says stands "== <way> <order> <onDisorder>" in a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqs_fifo_spark import in_group_order
from tests.helpers import spark_builder
from tests.spark.sink import COLUMNS, rows, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = json.loads(sys.argv[1])
COUNT = 20


def frames(spark: SparkSession) -> dict[tuple[str, str], DataFrame]:
    """Return the rows by the way in which they are written, and the order in which that sends them."""

    def one_group(way: str, groups: int = 1, partitions: int = 1) -> DataFrame:
        frame = rows(spark, COUNT, groups=groups, partitions=partitions)
        return frame.selectExpr("number", "body", "messageGroupId", f"'{way}-' || number AS messageDeduplicationId")

    dealt = one_group("dealt").selectExpr("*", "number % 2 AS parity")
    return {
        ("dealt", "batch"): dealt.repartitionByRange(2, "parity").sortWithinPartitions("number"),
        ("messageGroupId", "strict"): one_group("messageGroupId", groups=5, partitions=4),
        ("in_group_order", "strict"): in_group_order(one_group("in_group_order", partitions=4), "number"),
    }


def main() -> None:
    spark = (
        spark_builder("local[2]", Path.cwd())
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    for (way, order), frame in frames(spark).items():
        own = {"messageGroupId": "all"} if way == "messageGroupId" else {}
        ids: dict[str, Any] = {"txnAppId": f"{way}-{order}", "txnVersion": 1}
        for on_disorder in ("log", "fail"):  # the line of a write comes late: the last one raises
            print(f"== {way} {order} {on_disorder}", flush=True)
            try:
                write(frame.select(COLUMNS), order=order, onDisorder=on_disorder, **own, **ids, **OPTIONS)
            except Exception as error:
                print(f"raised: {error}", flush=True)
    print("==", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
