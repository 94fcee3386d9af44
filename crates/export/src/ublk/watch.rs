//! The time at which it is worth looking whether a device's users have gone: the kernel says when somebody
//! closes its node.

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks at a device that nobody was heard to close: file systems go without a word.
const NOW_AND_THEN: Duration = Duration::from_secs(5);
/// The least time between two looks: somebody may open and close it all the time.
const AT_MOST: Duration = Duration::from_secs(1);

/// Says when to look at one device.
#[derive(Debug)]
pub struct Watch {
    /// Nothing where the kernel gives none: then it is looked now and then.
    closings: Option<OwnedFd>,
    /// Somebody has closed it since the last look.
    closed: bool,
    last: Option<Instant>,
}

impl Watch {
    /// Of the block device at `node`. It is due at once.
    pub(super) fn of(node: &Path) -> Watch {
        let closings = || {
            let words = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            add_watch(&words, node, WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE)?;
            Ok::<_, Errno>(words)
        };
        Watch { closings: closings().ok(), closed: false, last: None }
    }

    /// True if somebody has closed it since the last look, or that one is a while ago.
    pub fn is_due(&mut self) -> bool {
        self.closed |= self.heard();
        self.last.is_none_or(|last| {
            let ago = last.elapsed();
            ago >= NOW_AND_THEN || self.closed && ago >= AT_MOST
        })
    }

    /// It has been looked at, which opens and closes it too.
    pub fn looked(&mut self) {
        self.heard();
        (self.closed, self.last) = (false, Some(Instant::now()));
    }

    /// Takes what the kernel has said; whether there was anything.
    fn heard(&mut self) -> bool {
        let Some(words) = &self.closings else { return false };
        let (mut some, mut heard) = ([0u8; 4096], false);
        while rustix::io::read(words, &mut some).is_ok_and(|n| n > 0) {
            heard = true;
        }
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_at_first_and_on_a_close_but_not_on_a_look() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = Watch::of(file.path());
        assert!(watch.is_due());
        drop(std::fs::File::open(file.path()).unwrap());
        watch.looked();
        let was = |ago| Instant::now().checked_sub(ago);
        watch.last = was(AT_MOST);
        assert!(!watch.is_due());
        let user = std::fs::File::open(file.path()).unwrap();
        assert!(!watch.is_due(), "it is open");
        drop(user);
        assert!(watch.is_due());
        watch.last = was(Duration::ZERO);
        assert!(!watch.is_due(), "it was a moment ago");
        watch.last = was(AT_MOST);
        assert!(watch.is_due(), "that somebody closed it is not forgotten");
        watch.looked();
        watch.last = was(NOW_AND_THEN);
        assert!(watch.is_due(), "it was a while ago");
    }
}
