"""The assignors that the broker computes with (KIP-848): `uniform` and `range`, as Kafka's; pure."""
