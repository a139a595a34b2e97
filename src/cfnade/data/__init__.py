"""From an event log to counts, relative ratings and splits."""
