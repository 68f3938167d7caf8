"""Queues: a member of a share group (KIP-932), and the tasks and requests around the pure parts of `client.core`."""
