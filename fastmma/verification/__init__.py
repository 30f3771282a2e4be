"""The emulator against silicon: trials, recordings, replays, and why a bit differs."""
