"""From image files to 8-bit RGB arrays, and what is kept of them: the cache, the object masks."""
