"""Bytes to values and back: the wire protocol, record batches and their rules. Pure; imports no other package."""

if __name__ != "fencepost.protocol":
    raise ImportError("import fencepost.protocol: the folder protocol is a link to it")
