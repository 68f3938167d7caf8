"""Opening a log after whatever happened: scanning, repair, seals, producer snapshots."""
