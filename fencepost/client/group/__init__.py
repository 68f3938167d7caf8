"""A consumer's life in a group: the tasks and requests around the machines of `client.core`."""
