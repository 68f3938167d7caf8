"""The client that a program uses, on trio."""
