"""Members of a group, a process each: they consume, and produce what they consumed in transactions."""
