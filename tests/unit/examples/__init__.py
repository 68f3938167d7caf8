"""The examples' own judgement, without a broker."""
