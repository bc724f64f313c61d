"""The command line: commands, their options, what is printed."""
