"""The scripts for Databricks in `conf`, run by Spark itself: what is Databricks' own is not here."""

from __future__ import annotations

import importlib
import runpy
from unittest import mock

import pytest
import yaml
from pyspark.sql.streaming.readwriter import DataStreamReader

from sqs_fifo_spark.options import parse_source_options
from tests.spark.support import ROOT, SPARK_VERSION, Rig

BUNDLE = ROOT / "conf" / "databricks"


def parameters(job: str, **values: object) -> list[str]:
    """Return what the bundle's job gives to its script, with these values of its variables."""
    bundle = yaml.safe_load((BUNDLE / "databricks.yml").read_text(encoding="utf-8"))
    (task,) = bundle["resources"]["jobs"][job]["tasks"]
    given: list[str] = task["spark_python_task"]["parameters"]
    for name, value in values.items():
        given = [each.replace(f"${{var.{name}}}", str(value)) for each in given]
    return given


@pytest.mark.long
def test_the_bundle_s_job_that_drains_the_queue_adds_each_message_to_the_table_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two runs, with the parameters that the bundle gives it; only the poll that ends each is short."""
    load = DataStreamReader.load
    monkeypatch.setattr(DataStreamReader, "load", lambda reader: load(reader.option("waitTimeSeconds", 1)))
    table = f"orders_{rig.home.name.replace('-', '_')}"
    given = parameters(
        "orders_available_now", queue_url=rig.url, journal=rig.journal, checkpoint=rig.home / "checkpoint", table=table
    )
    main = runpy.run_path(str(BUNDLE / "orders.py"))["main"]
    try:
        for _ in range(2):
            rig.send(20, groups=4)
            main(given)
        found = [row.messageId for row in rig.spark.table(table).select("messageId").collect()]
    finally:
        rig.spark.sql(f"DROP TABLE IF EXISTS {table}")
    assert sorted(found) == sorted(rig.sent)
    if SPARK_VERSION >= (4, 2):  # before, the last micro-batch is deleted by the next run
        assert rig.depth() == (0, 0)


@pytest.mark.skipif(SPARK_VERSION < (4, 1), reason="pyspark.pipelines begins with Spark 4.1")
def test_the_pipeline_has_one_table_that_is_a_stream_from_the_queue(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is run as a pipeline runs it: what it registers is asked for its frame."""
    registry = importlib.import_module("pyspark.pipelines.graph_element_registry")
    kept = mock.create_autospec(registry.GraphElementRegistry, instance=True)
    with registry.graph_element_registration_context(kept):
        names = runpy.run_path(str(BUNDLE / "pipeline.py"))
    assert {name for name, *_ in kept.method_calls} == {"register_output", "register_flow"}
    assert [call.args[0].name for call in kept.register_output.call_args_list] == ["orders"]
    ((flow,),) = (call.args for call in kept.register_flow.call_args_list)
    assert flow.target == "orders"
    frame = flow.func()
    assert frame.isStreaming
    assert "messageGroupId" in frame.columns
    parse_source_options({"queueUrl": names["QUEUE_URL"], "journalLocation": names["JOURNAL"]})
