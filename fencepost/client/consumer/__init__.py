"""The consumer: fetching, positions, commits, records and columns for the program."""
