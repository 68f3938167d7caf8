"""The broker: sockets, files and clocks around the pure coordinators."""

if __name__ != "fencepost.broker":
    raise ImportError("import fencepost.broker: the folder broker is a link to it")
