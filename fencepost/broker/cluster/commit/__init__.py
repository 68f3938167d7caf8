"""Logs whose appends wait for a round: one commit for all of them."""
