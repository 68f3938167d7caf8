"""The admin client: one module per thing that is administered, and `Admin`, which is all of them."""

from fencepost.client.admin.topics import Admin

__all__ = ["Admin"]
