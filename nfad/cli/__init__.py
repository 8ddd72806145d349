"""The command line: one file a command, each calling one library function."""
