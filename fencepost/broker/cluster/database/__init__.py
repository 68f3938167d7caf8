"""PostgreSQL as the database of a cluster, behind `cluster/engine.py`."""
