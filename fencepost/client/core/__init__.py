"""What the client decides, without tasks, sockets, clocks or chance: values in, values out."""
