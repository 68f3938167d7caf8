"""The models in docs/models, checked by TLC."""
