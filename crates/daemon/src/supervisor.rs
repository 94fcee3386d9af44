//! One volume of the daemon: a thread that starts it, looks after it and stops it, as it is told.

mod behind;
mod thread;

use crate::control::ControlThread;
use crate::device_ids::DeviceIds;
use crate::sections::Fault;
use loligo_client::api::definition::{Leave, VolumeConfig};
pub use loligo_client::api::status::Status;
use loligo_log::LastWords;
use loligo_volume::memory::Memory;
use loligo_volume::signals::Stopper;
use loligo_volume::volume_state::VolumeState;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The state that is wanted of a volume.
#[derive(Debug, Clone, PartialEq)]
enum DesiredState {
    /// To be served, and what that start is allowed.
    Run(Leave),
    /// Not to be; with the first, everything dirty goes to the core before.
    Stop { flush: bool },
    /// Not to be, because its section of the file is not right.
    Refuse(String),
    /// To end, and its thread with it.
    Quit,
}

#[derive(Debug)]
struct Inner {
    config: VolumeConfig,
    /// The fault in its section of the file, if there is one: it is served by the former section, or not at all.
    fault: Option<String>,
    status: Status,
    desired: DesiredState,
    /// It is to be stopped before it runs as wished.
    anew: bool,
    /// Raised with every wish, so that a refused start is tried once for each.
    wishes: u64,
    app: Option<Arc<VolumeState>>,
    /// The volume that is served or being stopped.
    last_app: Weak<VolumeState>,
    stopper: Option<Stopper>,
    /// The last line that it said since it was told to start or to stop.
    says: LastWords,
    /// Its thread does nothing more.
    over: bool,
    /// Its start is being looked at, and has nothing open yet.
    looks: bool,
    /// Its start hangs, and nobody waits for it.
    left_behind: bool,
    /// The time at which it was told to stop last.
    asked: Instant,
    /// The definition that it has its devices by, from the start to the end of the stop, and these as it found them.
    used: Option<(VolumeConfig, DeviceIds)>,
    /// It was ended at once, and this waits for what the kernel has of it.
    ending: Option<JoinHandle<()>>,
}

/// One volume of the daemon.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) name: String,
    inner: Mutex<Inner>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Supervisor {
    /// Starts the thread; the volume itself only if `run`.
    pub(crate) fn new(
        name: &str,
        config: VolumeConfig,
        run: bool,
        memory: Arc<dyn Memory>,
        control: ControlThread,
    ) -> std::io::Result<Arc<Supervisor>> {
        let desired =
            if run { DesiredState::Run(Leave::default()) } else { DesiredState::Stop { flush: false } };
        let status = if run { Status::Starting } else { Status::Stopped };
        let inner = Inner {
            config,
            fault: None,
            status,
            desired,
            anew: false,
            wishes: 1,
            app: None,
            last_app: Weak::new(),
            stopper: None,
            says: LastWords::default(),
            over: false,
            looks: false,
            left_behind: false,
            asked: Instant::now(),
            used: None,
            ending: None,
        };
        let supervisor = Arc::new(Supervisor {
            name: name.to_owned(),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            thread: Mutex::default(),
        });
        let own = supervisor.clone();
        let thread = std::thread::Builder::new()
            .name(format!("vol-{name}"))
            .spawn(move || own.live_on(&*memory, &control))?;
        *supervisor.thread.lock() = Some(thread);
        Ok(supervisor)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Its state. One whose devices have come is starting, and not waiting any more.
    pub(crate) fn status(&self) -> Status {
        let inner = self.lock();
        let comes = inner.stopper.as_ref().is_some_and(Stopper::has_devices);
        if comes && matches!(inner.status, Status::Waiting(_)) {
            Status::Starting
        } else {
            inner.status.clone()
        }
    }

    /// Its last message, while it starts or stops.
    pub(crate) fn says(&self) -> Option<String> {
        let inner = self.lock();
        let says = inner.says.lock();
        Some(says.clone()).filter(|said| !inner.status.settled() && !said.is_empty())
    }

    /// True if it was ended at once, and the kernel may still write for it.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.lock().ending.as_ref().is_some_and(|ending| !ending.is_finished())
    }

    /// Its definition.
    pub(crate) fn config(&self) -> VolumeConfig {
        self.lock().config.clone()
    }

    /// The definition that it starts, is served or stops by, and its devices as it found them; nothing where it has
    /// nothing open.
    pub(super) fn used(&self) -> Option<(VolumeConfig, DeviceIds)> {
        self.lock().used.clone()
    }

    /// Another definition from the next start on.
    pub(crate) fn define(&self, config: VolumeConfig) {
        let mut inner = self.lock();
        (inner.config, inner.fault) = (config, None);
    }

    /// The fault in its section of the file.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// Its section of the file is not right. One that is served goes on by the former one; any other is refused until that is mended.
    pub(super) fn is_wrong(&self, fault: Fault) {
        {
            let mut inner = self.lock();
            inner.fault = Some(fault.why.clone());
            if inner.app.is_some() || matches!(inner.status, Status::Starting | Status::Stopping) {
                return;
            }
            inner.config = fault.readable;
        }
        self.desired(DesiredState::Refuse(fault.why), false);
    }

    /// The running volume, if it is served.
    pub(crate) fn app(&self) -> Option<Arc<VolumeState>> {
        self.lock().app.clone()
    }

    fn set(&self, status: Status) {
        self.lock().status = status;
        self.changed.notify_all();
    }

    fn desired(&self, desired: DesiredState, anew: bool) {
        let mut inner = self.lock();
        if inner.desired == DesiredState::Quit {
            return;
        }
        if (anew || !matches!(desired, DesiredState::Run(_)))
            && let Some(stopper) = &inner.stopper
        {
            stopper.ask();
        }
        let before = inner.status.clone();
        // A second order to stop is no new one.
        if before != Status::Stopping || matches!(inner.desired, DesiredState::Run(_)) {
            inner.asked = Instant::now();
        }
        // Whoever asked next would otherwise see how it was before the wish.
        match (&desired, &inner.status) {
            (DesiredState::Run(_), Status::Serving) if anew => inner.status = Status::Stopping,
            (DesiredState::Run(_), Status::Starting | Status::Serving | Status::Stopping) => {}
            (DesiredState::Run(_), _) => inner.status = Status::Starting,
            (DesiredState::Refuse(why), _) => inner.status = Status::Refused(why.clone()),
            (DesiredState::Stop { .. } | DesiredState::Quit, Status::Stopped) => {}
            (DesiredState::Stop { .. } | DesiredState::Quit, _) => inner.status = Status::Stopping,
        }
        if inner.status != before {
            inner.says.lock().clear();
        }
        // Where nothing is started by it, nothing is allowed by it later.
        let idle = matches!(desired, DesiredState::Run(_)) && !anew && before == Status::Serving;
        inner.left_behind &= !matches!(desired, DesiredState::Run(_));
        inner.anew |= anew;
        inner.desired = desired;
        if idle {
            inner.allow_no_more();
        }
        inner.wishes += 1;
        self.changed.notify_all();
    }

    /// Starts it, if it is not served.
    pub(crate) fn start(&self, leave: Leave) {
        self.desired(self.run_if_right(leave), false);
    }

    fn run_if_right(&self, leave: Leave) -> DesiredState {
        let inner = self.lock();
        match &inner.fault {
            Some(why) if inner.app.is_none() => DesiredState::Refuse(why.clone()),
            Some(_) | None => DesiredState::Run(leave),
        }
    }

    /// Stops it where it is served, and starts it by the definition that it has by then.
    pub(crate) fn restart(&self) {
        self.desired(self.run_if_right(Leave::default()), true);
    }

    /// Stops it.
    pub(crate) fn stop(&self, flush: bool) {
        self.desired(DesiredState::Stop { flush }, false);
    }

    /// Ends it at once: nothing is written anywhere, no device is waited for, clients are hung up on. Its thread may take a while
    /// to see it.
    pub(crate) fn end_now(&self) {
        let app = {
            let inner = self.lock();
            inner.app.clone().or_else(|| inner.last_app.upgrade())
        };
        // Before its devices fall silent: clients are to hear no error of theirs.
        if let Some(app) = app {
            app.end_now();
        }
        // One that is only about to be served has nothing else.
        if let Some(stopper) = &self.lock().stopper {
            stopper.end();
        }
        self.desired(DesiredState::Stop { flush: false }, false);
    }

    /// It was lost to another controller before this daemon began.
    pub(crate) fn is_lost(&self, why: &str) {
        self.set(Status::Lost(why.to_owned()));
    }

    /// Stops it for good, and ends its thread.
    pub(crate) fn quit(&self) {
        self.desired(DesiredState::Quit, false);
    }

    /// Gives up what its stop waits for.
    pub(crate) fn hurry(&self) {
        if let Some(stopper) = &self.lock().stopper {
            stopper.stop();
        }
    }

    /// Takes back that it is to stop for good; it is stopped then. False where its thread has ended, or hangs.
    pub(crate) fn stay(&self) -> bool {
        let mut inner = self.lock();
        if inner.over || inner.left_behind {
            return false;
        }
        if inner.desired == DesiredState::Quit {
            inner.desired = DesiredState::Stop { flush: false };
            inner.wishes += 1;
            self.changed.notify_all();
        }
        true
    }

    /// True if its stop waits for a cluster that may never answer, and nothing is lost by not waiting.
    pub(crate) fn may_be_cut_off(&self) -> bool {
        self.lock().stopper.as_ref().is_some_and(Stopper::is_deadly)
    }

    /// True if its thread does nothing more.
    pub(crate) fn is_over(&self) -> bool {
        if self.lock().over {
            return true;
        }
        let thread = self.thread.lock();
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until its thread does nothing more, or nobody waits for that, or for `limit`; whether that is so.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        let mut inner = self.lock();
        self.changed.wait_while_for(&mut inner, |i| !i.over && !i.left_behind, limit);
        inner.over || inner.left_behind
    }

    /// Waits until it is neither starting nor stopping, or for `limit`. The result is its state then.
    pub(crate) fn settle(&self, limit: Duration) -> Status {
        let mut inner = self.lock();
        self.changed.wait_while_for(&mut inner, |i| !i.status.settled(), limit);
        inner.status.clone()
    }
}

impl Inner {
    /// Neither served nor about to be.
    fn has_nothing(&mut self) {
        (self.app, self.stopper, self.used, self.looks) = (None, None, None, false);
    }

    /// It is to stop, and has not.
    fn is_ending(&self) -> bool {
        match self.desired {
            DesiredState::Quit => true,
            DesiredState::Stop { .. } => self.status == Status::Stopping,
            DesiredState::Run(_) | DesiredState::Refuse(_) => false,
        }
    }

    /// Takes back what was allowed: it was for one start.
    fn allow_no_more(&mut self) {
        if let DesiredState::Run(leave) = &mut self.desired {
            *leave = Leave::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use loligo_client::api::cache_config::CacheConfig;
    use loligo_volume::last_cache::LastCache;
    use loligo_volume::memory::Begins;
    use loligo_volume::options::ServeOptions;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A daemon that panics when it is asked for the first time, and then refuses.
    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Memory for Panics {
        fn options(&self, _: &str, _: &VolumeConfig, _: Leave) -> anyhow::Result<ServeOptions> {
            assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 0, "planted");
            bail!("not this one")
        }
        fn begins(&self, _: &str, _: Begins<'_>) -> anyhow::Result<()> {
            Ok(())
        }
        fn cache_is(&self, _: &str, _: LastCache) -> anyhow::Result<()> {
            Ok(())
        }
        fn cache_was(&self, _: &str, _: LastCache) -> anyhow::Result<()> {
            Ok(())
        }
        fn lost(&self, _: &str, _: &str) -> anyhow::Result<()> {
            Ok(())
        }
        fn can_note(&self) -> anyhow::Result<()> {
            Ok(())
        }
        fn attached(&self, _: &str, _: &CacheConfig, _: LastCache) -> anyhow::Result<()> {
            Ok(())
        }
        fn detached(&self, _: &str) -> anyhow::Result<()> {
            Ok(())
        }
        fn follow(&self, _: &Arc<VolumeState>) {}
    }

    #[test]
    fn a_panic_makes_a_volume_failed_and_its_thread_lives_on() {
        let config = toml::from_str("core = \"/nowhere\"\nlisten = [\"unix:/nowhere\"]").unwrap();
        let control = ControlThread::start().unwrap();
        let supervisor = Supervisor::new("v", config, true, Arc::<Panics>::default(), control).unwrap();
        let limit = Duration::from_secs(60);
        let failed = supervisor.settle(limit);
        assert!(matches!(&failed, Status::Failed(why) if why.contains("panicked")), "{failed:?}");
        supervisor.start(Leave::default());
        let refused = supervisor.settle(limit);
        assert_eq!(refused, Status::Refused("not this one".to_owned()));
        supervisor.quit();
        assert!(supervisor.ends_within(limit));
    }
}
