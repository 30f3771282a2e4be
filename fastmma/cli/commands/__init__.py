"""The declarations of commands: arguments, options and help, without the modules that do the work."""
