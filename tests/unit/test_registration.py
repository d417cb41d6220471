"""`register` without a JVM: sessions of Spark Connect, and what Spark says of a format that it knows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkAttributeError

import sqs_fifo_spark
from sqs_fifo_spark import SqsFifoDataSource


class ConnectSession:
    """Stands for a session of Spark Connect, which has no SparkContext."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.registered: list[type] = []
        self.failure = failure

    @property
    def dataSource(self) -> ConnectSession:
        return self

    def register(self, source: type) -> None:
        if self.failure is not None:
            raise self.failure
        self.registered.append(source)

    @property
    def sparkContext(self) -> Any:
        raise PySparkAttributeError(
            errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
        )


def registered(session: Any) -> list[type]:
    sqs_fifo_spark.register(session)
    found: list[type] = session.registered
    return found


def test_a_session_of_spark_connect_is_only_told_of_the_format() -> None:
    """Nothing that needs a SparkContext is tried."""
    assert registered(ConnectSession()) == [SqsFifoDataSource]


def test_a_format_that_spark_will_not_have_replaced_is_no_error() -> None:
    """Spark 4.0 says so where it finds the format itself: there is nothing to do."""
    known = AnalysisException("Data source 'sqsfifo' already exists")
    known.getCondition = lambda: "DATA_SOURCE_ALREADY_EXISTS"  # type: ignore[method-assign]
    assert registered(ConnectSession(known)) == []


def test_any_other_refusal_of_spark_is_raised() -> None:
    """Nothing is swallowed but that one answer."""
    refusal = AnalysisException("the session is closed")
    with pytest.raises(AnalysisException, match="closed"):
        registered(ConnectSession(refusal))
