"""Python clients of Kafka side by side, on one broker in one run: what each costs its own process, and how fast it is."""
