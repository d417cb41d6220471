import re
from pathlib import Path
from urllib.parse import urljoin

from setuptools import setup

HERE = Path(__file__).parent
# Read, not imported: the package needs what is not installed yet.
INIT = (HERE / "sqs_fifo_spark" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.search(r'^__version__ = "(.+)"$', INIT, re.MULTILINE)
assert VERSION is not None
HOME = ""
"""The URL under which README.md stands, with a slash at its end, once there is one."""


def long_description(home: str = HOME) -> str:
    """Return README.md for PyPI, which has no other file: links lead to `home`; without one, their text is left."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    link = re.compile(r"\[([^]]*)\]\((?!https?://)([^)]*)\)")
    readme = urljoin(home, "README.md")
    return link.sub(lambda found: f"[{found[1]}]({urljoin(readme, found[2])})" if home else found[1], text)


ROOMS = ("", ".options", ".aws", ".journal", ".source", ".source.driver", ".source.task", ".sink", ".watch", ".local")
ROOMS += (".demo", ".cli", ".payloads", ".conformance")

setup(
    name="sqs-fifo-spark",
    version=VERSION[1],
    description="A Spark Structured Streaming source and sink for Amazon SQS FIFO queues: in order, replayable, "
    "exactly once",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    # The key "" makes an editable install put this directory itself on the path. Spark finds the module
    # pyspark_sqsfifo by listing the path, and would not see it behind an import hook.
    package_dir={"": "."},
    packages=[f"sqs_fifo_spark{room}" for room in ROOMS],
    py_modules=["pyspark_sqsfifo"],
    entry_points={
        "console_scripts": ["sqs-fifo-spark = sqs_fifo_spark.cli:main"],
        "pytest11": ["sqs_fifo_spark = sqs_fifo_spark.local.pytest_plugin"],
    },
    package_data={"sqs_fifo_spark": ["py.typed", "docs/*.md", "docs/*.png", "docs/examples/*.py", "project/**"]},
    # .ci/constraints-min.txt installs these lower bounds and tests with them.
    # PySpark is the platform's own where there is one: to replace it would break it.
    install_requires=[
        "pyarrow>=11.0.0",
        "boto3>=1.35.0",
        "botocore>=1.35.0",
        "tenacity>=8.3.0",
        "obstore>=0.7.3",
    ],
    extras_require={
        "spark": ["pyspark>=4.0"],
        "local": ["aiohttp>=3.9", "click>=8.2", "rich>=14.2"],
        "demo": ["pyspark>=4.0", "aiohttp>=3.9", "click>=8.2", "rich>=14.2"],
        "cli": ["click>=8.2", "rich>=14.2"],
        "prometheus": ["prometheus-client>=0.20"],
        "opentelemetry": ["opentelemetry-api>=1.24"],
        # What PySpark asks for before it lets Python sort a streaming frame (`in_group_order`).
        "order": ["pandas>=2.2,<3"],
        "test": [
            "pytest>=8",
            "pytest-xdist>=3.8",
            "moto[server,s3]>=5",
            "cfn-lint>=1",
            "pyyaml>=6",
            "aiohttp>=3.9",
            "click>=8.2",
            "rich>=14.2",
            "pandas>=2.2,<3",
            "greenlet>=3",
            "psutil>=6",
            "psycopg[binary]>=3.2",
            "import-linter>=2.16,<3",
            # AWS's own reader of the large bodies that a sink puts on S3.
            "amazon-sqs-extended-client==1.0.1",
            "prometheus-client>=0.20",
            "opentelemetry-sdk>=1.24",
            # Ways to install: Spark Connect, an archive, a wheel.
            "pyspark[connect]>=4.0",
            "venv-pack>=0.2",
            "setuptools>=70.1",
        ],
        # Tables that the pages' recipes write to.
        "tables": [
            "deltalake>=1.6",
            "pyiceberg[sql-sqlite]>=0.12",
            "psycopg[binary]>=3.2",
        ],
        # What the benchmarks compare to and draw with, beside `local` and `test`.
        "bench": [
            "awscrt>=0.27",
            "matplotlib>=3.8",
        ],
        "lint": [
            "ruff>=0.17,<0.18",
            "mypy>=2.4,<3",
            "types-psutil",
            "pre-commit>=4",
        ],
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Typing :: Typed",
    ],
)
