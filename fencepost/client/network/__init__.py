"""Connections to brokers, TLS and SASL, and what is known of the cluster."""
