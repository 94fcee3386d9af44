//! The volume's block device: claimed before it starts, live once it runs, left to its users when it ends.

use crate::core::OpenCore;
use crate::options::ServeOptions;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::keyed;
use loligo_block::keys::LISTEN;
use loligo_export::ExportSpec;
use loligo_export::blockdev::{Name, Owner};
use loligo_export::ublk::{Device, Left, Traits, Watch};
use loligo_log::say;
use loligo_shard::Handle;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The block device of one volume, where it has one.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    one: Option<One>,
    /// To whom it belongs.
    owner: Option<Owner>,
    /// The looks that are left to see whether it does.
    looks: u8,
}

/// A device, and what another in its place would have to be.
#[derive(Debug)]
struct One {
    name: String,
    /// Nothing while it is being replaced.
    device: Option<Device>,
    identity: String,
    traits: Traits,
    threads: usize,
    /// While it has not the size of its volume.
    watch: Option<Watch>,
    renewal: Option<Renewal>,
}

/// A device that is being replaced, if nobody uses it, by a thread of its own: the kernel may let that wait for answers of
/// the volume, which wait for whoever looks after that.
#[derive(Debug)]
struct Renewal {
    thread: JoinHandle<Result<(Device, Replaced)>>,
    given_up: Arc<AtomicBool>,
}

/// The result of [`replace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replaced {
    /// There is another device.
    Yes,
    /// The former one is in use.
    No,
}

/// Time that a stop waits for a device that is being replaced: longer than it takes to find out whether one is in use.
const REPLACING: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(5);

/// Looks, one a second: as long may whoever handles the system's events (udev) take to give a new node to whom it thinks right.
const LOOKS: u8 = 10;

/// The text that tells a volume from all others, also after a restart: its core, whatever cache is before it.
pub(crate) fn identity(core: &OpenCore) -> String {
    let id = &core.identity.id;
    match core.spec.path() {
        Some(path) => match std::fs::metadata(path) {
            // A file may get another name; another file in its place is another.
            Ok(m) if m.is_file() => format!("core {id} file {} {}", m.dev(), m.ino()),
            Ok(_) | Err(_) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                format!("core {id} {}", path.display())
            }
        },
        None => format!("core {id}"),
    }
}

impl Devices {
    /// Claims what `listen` asks for: what the last service left, or a new one.
    ///
    /// # Errors
    /// If the kernel has no ublk, or somebody else serves the device.
    pub(crate) fn claim(
        options: &ServeOptions,
        identity: &str,
        traits: &Traits,
        threads: usize,
    ) -> Result<Devices> {
        let mut devices = Devices { one: None, owner: options.block.owner, looks: LOOKS };
        for spec in &options.listen {
            let ExportSpec::Ublk(name) = spec else { continue };
            if devices.one.is_some() {
                bail!(keyed!("{LISTEN} {spec}: a volume is one block device at most"));
            }
            let named = Name::for_ublk(name, &options.block.dev_names)?;
            let device = Device::claim(identity, named, traits, threads)?;
            if !device.is_as_large(traits) {
                say!(
                    "warning: {} is open with {} bytes and the volume has {} now: its users see those when all of them have \
                     closed it and open it anew",
                    device.node(),
                    device.size(),
                    traits.size
                );
            }
            let (name, identity, traits) = (name.clone(), identity.to_owned(), traits.clone());
            let device = Some(device);
            devices.one = Some(One { name, device, identity, traits, threads, watch: None, renewal: None });
        }
        Ok(devices)
    }

    /// Lets requests come.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn go_live(&mut self, handle: &Handle) -> Result<()> {
        let Some(device) = self.device_mut() else { return Ok(()) };
        handle.serve_queues(device.queues()?);
        device.go_live(|| false)?;
        self.is_live()
    }

    fn device_mut(&mut self) -> Option<&mut Device> {
        self.one.as_mut()?.device.as_mut()
    }

    /// A device has begun: it is its owner's, and said.
    fn is_live(&self) -> Result<()> {
        let Some(device) = self.one.as_ref().and_then(|one| one.device.as_ref()) else { return Ok(()) };
        if let Some(owner) = self.owner {
            device.give_to(owner)?;
        }
        say!("{} is /dev/{}, {} bytes", device.path().display(), device.node(), device.size());
        Ok(())
    }

    /// To be called every second or so: sees that a new node stays whose it is, and a live one has its name.
    pub(crate) fn look(&mut self) {
        let Some(device) = self.one.as_ref().and_then(|one| one.device.as_ref()) else { return };
        device.put_name();
        let Some(owner) = self.owner.filter(|_| self.looks > 0) else { return };
        self.looks -= 1;
        if let Err(why) = device.give_to(owner) {
            say!("warning: {why}");
        }
    }

    /// To be called some times a second: where the device could not get its volume's size because it was
    /// open, another takes its place as soon as nobody has it open, so that users see the size when they come
    /// again. The wait begins only if `answers`: requests of the volume are answered.
    ///
    /// # Errors
    /// If the former device is gone and no other could be made.
    pub(crate) fn renew(&mut self, handle: &Handle, answers: impl FnOnce() -> bool) -> Result<()> {
        let Some(one) = &mut self.one else { return Ok(()) };
        if one.renewal.as_ref().is_some_and(|renewal| renewal.thread.is_finished()) {
            return match one.replaced()? {
                Replaced::No => Ok(()),
                Replaced::Yes => {
                    self.looks = LOOKS;
                    self.is_live()
                }
            };
        }
        let Some(device) = one.device.as_ref().filter(|d| !d.is_as_large(&one.traits)) else { return Ok(()) };
        if one.watch.get_or_insert_with(|| device.watch()).is_due() && answers() {
            one.replace(handle)?;
        }
        Ok(())
    }

    /// The volume has so many bytes from now on. The result is what keeps the size that it has, and why.
    pub(crate) fn resize(&mut self, bytes: u64) -> Option<String> {
        let One { name, device, traits, .. } = self.one.as_mut()?;
        traits.size = bytes;
        let Some(device) = device else {
            return Some(format!("/dev/loligo/{name} is being replaced, and is as large after that"));
        };
        device.resize(bytes).err().map(|why| format!("/dev/loligo/{name}: {why}"))
    }

    /// Stops it if nobody has it open, while requests are still answered.
    pub(crate) fn let_go(&mut self) {
        let Some(one) = &mut self.one else { return };
        if let Err(why) = one.end_replacing() {
            say!("warning: {why:#}");
        }
        let One { name, device: Some(device), .. } = one else { return };
        if device.let_go() == Left::Waiting {
            say!(
                "/dev/loligo/{name} ({}) is in use: it stays, and its users wait until the volume is served again",
                device.node()
            );
        }
    }

    /// Deletes what was stopped, once the threads have ended.
    pub(crate) fn end(self) {
        if let Some(device) = self.one.and_then(|one| one.device) {
            device.end();
        }
    }

    /// True if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_none()
    }
}

impl One {
    /// Begins to replace the device.
    fn replace(&mut self, handle: &Handle) -> Result<()> {
        let Some(device) = self.device.take() else { return Ok(()) };
        let given_up = Arc::<AtomicBool>::default();
        let (identity, traits, threads) = (self.identity.clone(), self.traits.clone(), self.threads);
        let (handle, stop) = (handle.clone(), given_up.clone());
        let thread = std::thread::Builder::new()
            .name("another device".into())
            .spawn(move || replace(device, &identity, &traits, threads, &handle, &stop))
            .context("no thread can be started")?;
        self.renewal = Some(Renewal { thread, given_up });
        Ok(())
    }

    /// Takes what came of it; waits for that.
    fn replaced(&mut self) -> Result<Replaced> {
        let Some(renewal) = self.renewal.take() else { return Ok(Replaced::No) };
        let ended = renewal.thread.join().unwrap_or_else(|_| bail!("a thread has panicked"));
        let (device, replaced) =
            ended.with_context(|| format!("/dev/loligo/{} was to have another size", self.name))?;
        self.device = Some(device);
        match replaced {
            Replaced::Yes => self.watch = None,
            Replaced::No => self.watch.iter_mut().for_each(Watch::looked),
        }
        Ok(replaced)
    }

    /// Has an exchange that is under way end; one that does not is left to itself, with its device.
    fn end_replacing(&mut self) -> Result<()> {
        let Some(renewal) = &self.renewal else { return Ok(()) };
        renewal.given_up.store(true, Ordering::Release);
        let begun = Instant::now();
        while !renewal.thread.is_finished() {
            ensure!(
                begun.elapsed() < REPLACING,
                "/dev/loligo/{} is being replaced by a device of another size, and the kernel does not come to an end with that",
                self.name
            );
            std::thread::sleep(PAUSE);
        }
        self.replaced().map(drop)
    }
}

/// Stops a device that nobody uses and makes another in its place.
fn replace(
    mut device: Device,
    identity: &str,
    traits: &Traits,
    threads: usize,
    handle: &Handle,
    given_up: &AtomicBool,
) -> Result<(Device, Replaced)> {
    if device.let_go() == Left::Waiting {
        return Ok((device, Replaced::No));
    }
    let given_up = || given_up.load(Ordering::Acquire);
    let mut device = device.renew(identity, traits, threads, &given_up)?;
    handle.serve_queues(device.queues()?);
    device.go_live(given_up)?;
    Ok((device, Replaced::Yes))
}
