"""The web console: pages about a cluster that `fencepost console` and `fencepost serve --console` serve.

It is a client of the brokers like others, with the rights of its user. It needs the extra `fencepost[console]`.
"""
