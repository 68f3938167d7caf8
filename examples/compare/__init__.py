"""The example programs of docs/comparison.md, written with other clients."""
