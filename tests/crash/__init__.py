"""What is left of a store after kills, power cuts and broken disks, and what it says about it."""
