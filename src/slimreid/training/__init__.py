"""Training: losses, optimizer, schedule, moving average, and the loop around them."""
