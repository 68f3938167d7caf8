"""A data directory read by somebody who believes nothing that is written in it."""
