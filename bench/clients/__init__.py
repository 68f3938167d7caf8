"""Python clients of Kafka side by side on one broker in one run: what each costs its process, and how fast it is."""
