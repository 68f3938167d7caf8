"""The client's decisions as pure functions and state machines, without tasks, sockets, clocks or randomness."""
