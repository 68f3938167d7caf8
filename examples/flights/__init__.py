"""The flights of New York 2013, through transactions, kills and Spark: run it with `make demo`."""
