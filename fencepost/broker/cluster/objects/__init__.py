"""The objects of a cluster: how they are written and read, their ids, their owner, and their end."""
