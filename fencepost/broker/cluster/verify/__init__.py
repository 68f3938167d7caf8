"""Checks of the stores, which trust nothing, and what tools ask about them."""
