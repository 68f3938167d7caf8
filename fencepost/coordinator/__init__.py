"""The coordinators of transactions, groups and metadata: pure decisions with a thin shell around them."""
