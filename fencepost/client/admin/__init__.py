"""The admin client: one module per thing that is administered, and `Admin`, which is all of them."""

from fencepost.client.admin.client import Admin
from fencepost.client.admin.item_errors import ItemErrors

__all__ = ["Admin", "ItemErrors"]
