//! Who of a pool should have how many extents. 
