//! One thread, one ring: reap, step, carry out, submit
