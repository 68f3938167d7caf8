"""Share groups in the group coordinator (KIP-932): members, assignment, and the partitions that a group has begun."""
