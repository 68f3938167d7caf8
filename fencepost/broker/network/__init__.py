"""Sockets: the listener, its connections, the poller, requests in and responses out."""
