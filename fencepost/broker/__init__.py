"""The machine room: sockets, files and clocks around the cores."""
