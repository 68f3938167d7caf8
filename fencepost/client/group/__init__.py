"""A consumer's membership in a group: the tasks and requests around the state machines of `client.core`."""
