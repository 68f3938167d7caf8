"""Sockets: the listener, its connections and the poller; requests in, responses out."""
