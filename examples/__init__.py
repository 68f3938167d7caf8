"""Programs that show fencepost at work on real data."""
