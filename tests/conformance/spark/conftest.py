"""A Spark whose Python processes start in a third of the time, for it gives each of them ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest


@pytest.fixture(scope="session", autouse=True)
def without_zip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leave out `python/lib/pyspark.zip`, which is first on their path and would be compiled by each of them."""
    home = tmp_path_factory.mktemp("spark-home")
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        yield
