//! The reason why a device operation failed: a small kind to decide by, and a text to show.

use crate::KeyedText;
use std::fmt;

/// Decides the reaction to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// The medium or transport failed.
    Io,
    /// No space left behind the device.
    NoSpace,
    /// The device cannot do this operation.
    Unsupported,
    /// Offset or length is outside the device or not on its blocks.
    Invalid,
    /// The device is gone and will not come back.
    Gone,
    /// Nothing may be asked of the device any more: the array has fenced this controller (a reservation conflict, `EBADE`), or
    /// its user was ended at once. Nothing at all is written because of it, here or elsewhere.
    Fenced,
}

/// A failed device operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoError {
    /// Its kind, to decide by.
    pub kind: IoKind,
    /// The operating system's error number, 0 if there is none.
    pub errno: i32,
    /// The operation, and its place.
    pub context: KeyedText,
}

impl IoError {
    /// An error without an operating-system number.
    pub fn new(kind: IoKind, context: impl Into<KeyedText>) -> IoError {
        IoError { kind, errno: 0, context: context.into() }
    }

    /// An error from the operating system's number.
    pub fn from_errno(errno: i32, context: impl Into<KeyedText>) -> IoError {
        let kind = match errno {
            libc::ENOSPC | libc::EDQUOT => IoKind::NoSpace,
            libc::EOPNOTSUPP | libc::ENOSYS => IoKind::Unsupported,
            libc::EINVAL => IoKind::Invalid,
            libc::ENODEV | libc::ENXIO => IoKind::Gone,
            libc::EBADE => IoKind::Fenced,
            _ => IoKind::Io,
        };
        IoError { kind, errno, context: context.into() }
    }

    /// The words for an error of kind [`IoKind::Fenced`]: the array's, or those of a device that fell silent because of such a one.
    pub fn words_of_fence(&self) -> String {
        match self.errno {
            0 => self.to_string(),
            _ => format!(
                "fenced: the array refuses this controller's writes (EBADE), its partner has it: {self}"
            ),
        }
    }

    /// True if the device answers nothing else from now on: no other place on it is worth a try.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, IoKind::Gone | IoKind::Fenced)
    }
}

impl From<std::io::Error> for IoError {
    fn from(e: std::io::Error) -> IoError {
        let mut err = IoError::from_errno(e.raw_os_error().unwrap_or(0), "");
        err.context = e.to_string().into();
        err
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.errno == 0 {
            write!(f, "{}", self.context)
        } else {
            write!(f, "{}: {}", self.context, std::io::Error::from_raw_os_error(self.errno))
        }
    }
}

impl std::error::Error for IoError {}
