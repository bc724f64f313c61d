"""What listens to a run: files, the display, the watch on kept patches."""
