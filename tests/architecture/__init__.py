"""The rules of the house, checked: rooms, directions, documents and packaging."""
