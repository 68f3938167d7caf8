"""The fencepost command."""
