"""The broker: sockets, files and clocks around the pure coordinators."""
