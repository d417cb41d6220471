"""Spark's standalone cluster in the driver's JVM, for the applications that need speculation."""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.helpers import spark_builder


def start_cluster(home: Path) -> str:
    """Start a master and a worker on each of two hosts in this JVM, and return the master's URL.

    Spark makes no speculative copy in local mode, and none on the host where the first attempt runs: `local-cluster`
    has one host. Linux answers to all of 127.0.0.0/8.
    """
    SparkContext._ensure_initialized()
    jvm, gateway = SparkContext._jvm, SparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    deploy = jvm.org.apache.spark.deploy
    conf = jvm.org.apache.spark.SparkConf()
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1()
    url = f"spark://127.0.0.1:{master.address().port()}"
    urls = gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    for number, host in enumerate(("127.0.0.1", "127.0.0.2"), 1):
        option = jvm.scala.Option
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 2, 512, urls, str(home / "work"), option.apply(number), conf, option.empty()
        )
    return url


def start_session(home: Path) -> SparkSession:
    """Start the cluster and an application on it that makes a copy of every task that is slower than others."""
    return (
        spark_builder(start_cluster(home), home)
        .config("spark.executor.memory", "512m")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.quantile", "0.25")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.minTaskRuntime", "200ms")
        .getOrCreate()
    )
