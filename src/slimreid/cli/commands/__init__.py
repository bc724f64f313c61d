"""What each command does; `slimreid.cli.command_table` lists them."""
