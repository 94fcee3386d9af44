//! Looks at an image's size whenever something about it has changed, whatever its quiescer is busy with: one that shrinks and grows
//! again at once has lost what was cut off.

use crate::attached_image::AttachedImage;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// The thread that looks.
#[derive(Debug)]
pub(crate) struct SizeWatcher {
    bell: Sender<()>,
    thread: JoinHandle<()>,
}

impl SizeWatcher {
    /// Starts it for `image`.
    ///
    /// # Errors
    /// If no thread can be had.
    pub(crate) fn start(image: &Arc<AttachedImage>) -> std::io::Result<SizeWatcher> {
        let image = Arc::downgrade(image);
        let (bell, rung) = channel();
        let look = move || {
            while rung.recv().is_ok() {
                let Some(image) = image.upgrade() else { return };
                let reach = image.reach();
                // Where it cannot be read the quiescer finds out as well, and stops what is written.
                if let Ok(size) = image.image().size() {
                    image.saw_size(size, reach);
                }
            }
        };
        let thread = std::thread::Builder::new().name("rbd-size".to_owned()).spawn(look)?;
        Ok(SizeWatcher { bell, thread })
    }

    /// Has it look. Does not wait.
    pub(crate) fn ring(&self) {
        // It ends only with this.
        let _ = self.bell.send(());
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        drop(self.bell);
        // It does nothing that panics, and there is nothing to be done about it.
        let _ = self.thread.join();
    }
}
