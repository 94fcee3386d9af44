//! Devices that fall silent together: from then on nothing is asked of any of them.

use crate::{IoError, IoKind};
use std::sync::{Arc, OnceLock};

/// The reason why devices are silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The array has fenced this controller, in these words.
    Fenced(String),
    /// Their user was ended at once.
    Ended,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Fenced(words) => f.write_str(words),
            Cause::Ended => f.write_str("ended at once, by order"),
        }
    }
}

/// The silence of a volume's devices. The first cause stays; there is no way back. Clones are the same.
///
/// A device that has one begins it by itself with the first operation that is refused as fenced. From then on no operation
/// reaches the kernel, by whichever thread: what the kernel has already is for the array to refuse.
#[derive(Debug, Clone, Default)]
pub struct Silence(Arc<OnceLock<Cause>>);

impl Silence {
    /// Has all its devices fall silent.
    pub fn begin(&self, cause: Cause) {
        // The first cause is the one to tell.
        let _ = self.0.set(cause);
    }

    /// The reason, if they are silent.
    #[inline]
    pub fn cause(&self) -> Option<&Cause> {
        self.0.get()
    }

    /// Begins it if `error` says that this controller is fenced.
    pub fn hear(&self, error: &IoError) {
        if error.kind == IoKind::Fenced {
            self.begin(Cause::Fenced(error.words_of_fence()));
        }
    }

    /// Refuses an operation of a silent device.
    ///
    /// # Errors
    /// If it is silent.
    #[inline]
    pub fn refuse(&self) -> Result<(), IoError> {
        match self.cause() {
            None => Ok(()),
            Some(cause) => Err(IoError::new(IoKind::Fenced, cause.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Buf, DevId, Device, DeviceFile, Op, OpKind, OpenOptions, Ring, Submit, SyncFile, SyncIo, UringFile,
    };

    fn fenced() -> IoError {
        IoError::from_errno(libc::EBADE, "write of 4096 bytes at 0 of x")
    }

    #[test]
    fn a_reservation_conflict_is_a_kind_of_its_own() {
        assert_eq!(fenced().kind, IoKind::Fenced);
        assert!(fenced().is_final());
        assert_eq!(IoError::from_errno(libc::EIO, "x").kind, IoKind::Io);
    }

    #[test]
    fn the_first_cause_stays_and_other_errors_are_none() {
        let silence = Silence::default();
        silence.hear(&IoError::from_errno(libc::EIO, "x"));
        assert!(silence.refuse().is_ok());
        silence.clone().hear(&fenced());
        silence.begin(Cause::Ended);
        assert!(matches!(silence.cause(), Some(Cause::Fenced(_))));
        let refused = silence.refuse().unwrap_err();
        assert_eq!(refused.kind, IoKind::Fenced);
        assert!(
            refused.to_string().starts_with("fenced: the array refuses this controller's writes (EBADE)")
        );
    }

    #[test]
    fn one_device_that_is_fenced_silences_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let silence = Silence::default();
        let made = |name: &str| {
            let file = DeviceFile::create(dir.path().join(name), 1 << 20, &OpenOptions::default()).unwrap();
            file.silenced_by(&silence)
        };
        let (cache, core) = (made("cache"), made("core"));
        let (mut sync, mut ring) = (SyncFile::new(core.clone()), Ring::new(8).unwrap());
        let mut threads = UringFile::new(core.separate().unwrap(), DevId(0));
        sync.write_at(0, &[1; 4096]).unwrap();
        cache.heard(&fenced());
        assert_eq!(sync.write_at(0, &[2; 4096]).unwrap_err().kind, IoKind::Fenced);
        assert_eq!(sync.read_at(0, &mut [0; 512]).unwrap_err().kind, IoKind::Fenced);
        assert_eq!(sync.flush().unwrap_err().kind, IoKind::Fenced);
        let kind = OpKind::Write { data: Buf::copy_of(&[3; 4096]).freeze(), fua: false };
        let Submit::Finished(refused) = threads.submit(&mut ring, 0, Op { tag: 1, offset: 0, kind }) else {
            panic!("it was taken")
        };
        assert_eq!(refused.result.unwrap_err().kind, IoKind::Fenced);
        let stored = std::fs::read(dir.path().join("core")).unwrap();
        assert!(stored[..4096].iter().all(|b| *b == 1), "nothing was written since");
    }
}
