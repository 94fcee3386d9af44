//! How a volume is reached: the NBD server
