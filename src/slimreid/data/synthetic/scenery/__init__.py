"""What surrounds the objects of the synthetic world: places, time of day, materials, cameras, sensors."""
