"""Share groups on a partition's leader (KIP-932): what each group has acquired of it, and what has become of that."""
