"""What may happen and what must be remembered: transactions, groups and metadata as pure cores with thin shells."""
