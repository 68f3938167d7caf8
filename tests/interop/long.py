"""How much is played."""

import os

LONG = os.environ.get("FENCEPOST_INTEROP") == "long"
"""Set FENCEPOST_INTEROP=long for every cast of clients on every broker, and both protocols killed: ten minutes more."""
