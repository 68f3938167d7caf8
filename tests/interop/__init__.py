"""Clients that other people wrote, against a real broker process."""
