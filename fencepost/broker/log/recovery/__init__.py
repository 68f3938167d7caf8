"""Opening a log after a clean shutdown or a crash: scanning, repair, seals, producer snapshots."""
