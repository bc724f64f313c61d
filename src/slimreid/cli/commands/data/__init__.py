"""`slimreid data ...`: tables of images, and the images themselves."""
