"""The broker's side of transactions: markers, hanging transactions, explanations of rejected writes."""
