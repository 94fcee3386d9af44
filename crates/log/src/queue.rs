//! Lines on their way to standard error, by a thread that may have to wait for their reader.

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that may wait to be written. Lines beyond that are dropped: a reader who does not read has no use
/// for it.
const MOST: usize = 1 << 20;

/// The queue, and the thread behind it.
#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write.
    filled: Condvar,
    /// Something was written.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    /// Bytes of `lines`.
    bytes: usize,
    /// Lines that were ever taken in, and those of them that are done with.
    taken: u64,
    done: u64,
    /// Lines that nobody will see.
    dropped: u64,
    /// Somebody has waited in vain, and nothing was written since.
    stalled: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until the first `number` lines are done with, as long as `limit` and `hope` last.
    fn wait(&self, number: u64, limit: Duration, hope: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waits = |s: &mut State| s.done < number && hope(s);
        let mut state = self.lock();
        self.drained.wait_while_for(&mut state, waits, limit);
        state
    }

    /// Writes what comes, for ever.
    fn run(&self) {
        loop {
            let (line, dropped) = {
                let mut state = self.lock();
                self.filled.wait_while(&mut state, |s| s.lines.is_empty());
                let line = state.lines.pop_front().unwrap_or_default();
                state.bytes -= line.len();
                (line, state.dropped)
            };
            let written = write(line.as_bytes());
            let told = written && dropped > 0 && {
                let style = crate::style::Style::of_service();
                let words = format!(
                    "warning: {dropped} lines of this log were lost, because its reader did not \
                        read them"
                );
                write(style.render(crate::style::Level::Warning, None, &words).as_bytes())
            };
            let mut state = self.lock();
            state.done += 1;
            state.stalled = false;
            state.dropped += u64::from(!written);
            if told {
                state.dropped -= dropped;
            }
            drop(state);
            self.drained.notify_all();
        }
    }
}

impl Queue {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be none.
    pub(crate) fn start() -> io::Result<Queue> {
        let shared = Arc::<Shared>::default();
        let writes = shared.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || writes.run())?;
        Ok(Queue { shared })
    }

    /// Takes `line` in, or drops it where too much waits, and waits for it so long at most.
    pub(crate) fn put(&self, line: String, patience: Duration) {
        let mut state = self.shared.lock();
        if state.bytes + line.len() > MOST {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        state.taken += 1;
        let number = state.taken;
        drop(state);
        self.shared.filled.notify_one();
        if !patience.is_zero() {
            let mut state = self.shared.wait(number, patience, |s| !s.stalled);
            state.stalled |= state.done < number;
        }
    }

    /// Waits for all lines that are there, so long at most.
    pub(crate) fn finish(&self, limit: Duration) {
        let number = self.shared.lock().taken;
        drop(self.shared.wait(number, limit, |_| true));
    }
}

/// Writes to standard error; whether all of it was written. Not through the standard library's own handle: its lock would
/// be held for as long as the reader does not read.
pub(crate) fn write(mut bytes: &[u8]) -> bool {
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(&stderr, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            // Whoever shares the descriptor has made it so.
            Err(Errno::AGAIN) => {
                let begun = Instant::now();
                let polled = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
                if polled.is_err_and(|e| e != Errno::INTR) {
                    std::thread::sleep(Duration::from_millis(100).saturating_sub(begun.elapsed()));
                }
            }
            Err(_) => return false,
        }
    }
    true
}
