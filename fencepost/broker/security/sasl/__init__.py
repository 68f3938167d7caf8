"""Logins by SASL: the broker's side of each mechanism as a pure state machine, and the exchange on a connection."""
