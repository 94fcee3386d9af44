//! A seeded world around the cache engine: faulty devices, crashes and an oracle
