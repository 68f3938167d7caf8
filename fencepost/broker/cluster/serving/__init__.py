"""A broker's place in a cluster: it joins, leads slots, follows others, and reports."""
