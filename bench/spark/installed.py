"""A Python for Spark's workers that has what an installation of the wheel has, made of this clone."""

import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
START = "_fencepost_spark.pth"


def installed_python(place: Path) -> str:
    """The command of an environment in `place`: the packages of this one, this fencepost, and its start of workers."""
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    own = [entry for entry in sys.path if entry.endswith("-packages")]
    (packages / "packages.pth").write_text("".join(f"import site; site.addsitedir({one!r})\n" for one in own))
    for name in ("fencepost", "pyspark_fencepost", START):
        (packages / name).symlink_to(ROOT / name)
    return str(place / "bin" / "python")
