"""What each command does; `slimreid.cli` lists them. Heavy imports wait until a command runs."""
