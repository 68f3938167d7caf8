"""Connections to brokers, TLS and SASL, and the client's view of the cluster."""
