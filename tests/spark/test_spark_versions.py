"""What differs between the versions of Spark, as far as the installed one can show it."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from fencepost.spark_connector import write_exactly_once

OLD_SPARK = """
import pyspark.sql.datasource as datasource
del datasource.DataSourceStreamArrowWriter
from fencepost.spark_connector.sink.sink import StreamWriter
assert issubclass(StreamWriter, datasource.DataSourceArrowWriter), "by this Spark 4.0 gives it Arrow batches"
assert issubclass(StreamWriter, datasource.DataSourceStreamWriter)
assert not StreamWriter.__abstractmethods__
"""


def test_a_stream_can_be_written_by_spark_4_0() -> None:
    """It has no DataSourceStreamArrowWriter. The installed Spark stands in; `make spark-versions` runs a real one."""
    subprocess.run([sys.executable, "-c", OLD_SPARK], check=True, timeout=100)


class OfConnect:
    """A frame of Spark Connect, whose session has no sparkContext."""

    @property
    def sparkSession(self) -> "OfConnect":
        return self


def test_on_spark_connect_the_query_has_to_be_named() -> None:
    with pytest.raises(ValueError, match="on Spark Connect: set query_id to a name that stays"):
        write_exactly_once(OfConnect(), 0, transactional_id="x", options={})
