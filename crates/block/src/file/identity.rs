//! By what a core is known again.

use std::fmt;

/// The identity that tells one core from another across restarts and renamed device nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A block device with a name of its own.
    Device {
        /// WWN, serial number or the like, as the kernel gives it.
        id: String,
        /// Bytes from the start of that device (not zero for a partition).
        offset: u64,
    },
    /// A file, or a device without a name: bytes.
    Size(u64),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Device { id, offset: 0 } => write!(f, "device {id}"),
            Identity::Device { id, offset } => write!(f, "device {id} from byte {offset}"),
            Identity::Size(n) => write!(f, "a file of {n} bytes"),
        }
    }
}
