"""The group coordinator: members and their offsets."""
