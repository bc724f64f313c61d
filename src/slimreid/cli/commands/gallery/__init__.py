"""`slimreid gallery ...`: enrol, search, identify, keep clean."""
