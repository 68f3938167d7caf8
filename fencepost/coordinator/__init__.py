"""The coordinators of transactions, groups and metadata: pure decisions with a thin shell around them."""

if __name__ != "fencepost.coordinator":
    raise ImportError("import fencepost.coordinator: the folder coordinator is a link to it")
