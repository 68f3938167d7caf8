"""Several brokers on one machine, one for each core: each leads the partitions in its own directory."""
