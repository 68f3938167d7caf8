"""Who a client is, and what it may do: principals, logins, rules and quotas. It imports no other room of the broker."""
