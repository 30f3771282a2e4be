"""What each command takes: its arguments, options and help, without the modules that do its work."""
