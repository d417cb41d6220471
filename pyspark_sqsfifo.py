"""Makes `format("sqsfifo")` known to Spark without registration.

Spark imports every installed module whose name begins with `pyspark_`, in every application, and takes its
`DefaultSource`. So this import is cheap, and where PySpark has no Python data sources there simply is none.
"""

try:
    from sqs_fifo_spark.datasource import SqsFifoDataSource as DefaultSource
except ImportError:  # an environment without pyspark>=4.0 has no use for this module
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
