"""Spark behaves as the source and sink rest on: none of this uses the product."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.conformance.spark.bench import BUSY, Bench
from tests.conformance.spark.cases import CASES, Case, markdown
from tests.conformance.spark.traced import Traced
from tests.spark.support import ROOT, SPARK_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # PySpark's own, before 4.2


@pytest.mark.long
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_spark_does_as_the_facts_say(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    """Each fact of a case as this version of Spark has it."""
    spark.dataSource.register(Traced)
    sentences = [fact.sentence for fact in case.facts]
    seen = dict(zip(sentences, play(case, spark, tmp_path), strict=True))
    assert seen == {fact.sentence: fact.on(SPARK_VERSION) for fact in case.facts}


def play(case: Case, spark: SparkSession, folder: Path, tries: int = 5) -> list[str]:
    """Return what a case sees. It begins anew, in a folder of its own, if the machine was too busy for a worker."""
    bench = Bench(spark, folder / f"{tries} left")
    bench.home.mkdir()
    try:
        seen = list(case.play(bench))
        busy = [each for each in seen if BUSY in each]
    except (AssertionError, PySparkException, Py4JJavaError) as error:
        if BUSY not in str(error):
            raise
        busy = [str(error)]
    finally:
        bench.stop()
    if busy and tries == 1:
        raise AssertionError(busy[0])
    return play(case, spark, folder, tries - 1) if busy else seen


def test_page_has_the_facts() -> None:
    """Between the markers stands the table itself, and nothing else."""
    text = (ROOT / "sqs_fifo_spark" / "docs" / "spark-facts.md").read_text(encoding="utf-8")
    assert text.partition("<!-- facts:begin -->")[2].partition("<!-- facts:end -->")[0].strip() == markdown()
