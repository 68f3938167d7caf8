"""What an installation has: a clone installed in place, and a wheel built where an older build has left its files."""

import subprocess
import sys
from pathlib import Path


def test_pyspark_can_list_the_data_source_from_any_folder(tmp_path: Path) -> None:
    """PySpark looks for data sources with `pkgutil.iter_modules`, which sees no module that an import hook provides."""
    code = "import pkgutil; print([one.name for one in pkgutil.iter_modules() if one.name.startswith('pyspark_')])"
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=100, check=True
    )
    assert "'pyspark_fencepost'" in listed.stdout
