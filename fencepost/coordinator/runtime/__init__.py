"""The runtime of all coordinators: shards that are loaded, run commands, fire timers, and are unloaded."""
