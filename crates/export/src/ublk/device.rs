//! One ublk device from its making, or its taking over from a server that is gone, to its end.

use super::control::{Control, failed};
use super::error::UblkError;
use super::idle::Idle;
use super::parameters::{MOST_BYTES, Traits};
use super::queue::{Queue, Served};
use super::uapi::{self, DeviceInfo};
use super::users;
use super::watch::Watch;
use crate::blockdev::{Access, Name, Owner};
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Slots of a queue: more than a disk takes at once, and few enough that one submission hands all of them over.
const DEPTH: u16 = 128;
/// The time that the kernel may take to let go of a server that has ended: it waits for that one's own I/O.
const LETTING_GO: Duration = Duration::from_secs(60);
/// The time that it may take to find out whether a device is in use.
const LOOKING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);
/// The kernel's list of the devices.
const LIST: &str = "/sys/class/ublk-char";

/// The way [`Device::claim`] came by the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// It is new.
    Made,
    /// It was waiting for a server.
    Found,
}

/// A ublk device that this process serves. Dropping it leaves the device to itself: its users wait.
#[derive(Debug)]
pub struct Device {
    control: Control,
    served: Arc<Served>,
    origin: Origin,
    name: Name,
    queues: u16,
    size: u64,
    live: bool,
}

/// The state of a device when its server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nobody had it open: it is deleted.
    Deleted,
    /// It is open: it stays, and requests wait until the volume is served again.
    Waiting,
}

impl Device {
    /// The device of the volume that `identity` tells from all others, for the name `name`: the one that its
    /// last server left, or a new one with a queue for each of `threads`. A device that was left and does not
    /// fit is deleted if nobody has it open.
    ///
    /// # Errors
    /// If there is no ublk, somebody else serves the device, or its users would be deceived.
    pub fn claim(identity: &str, name: Name, traits: &Traits, threads: usize) -> Result<Device, UblkError> {
        let control = Control::open()?;
        let token = token(identity);
        let (info, origin) = match find(&control, token)? {
            Some(info) => match take_over(&control, info, &name, traits)? {
                Some(info) => (info, Origin::Found),
                None => (make(&control, token, traits, threads, None)?, Origin::Made),
            },
            None => (make(&control, token, traits, threads, None)?, Origin::Made),
        };
        Device::served_by_us(control, &info, origin, name)
    }

    fn served_by_us(
        control: Control,
        info: &DeviceInfo,
        origin: Origin,
        name: Name,
    ) -> Result<Device, UblkError> {
        let sectors = control.parameters(info.id)?.sectors;
        let file = open_server(info.id)?;
        let served =
            Arc::new(Served { file, id: info.id, depth: info.depth, refused: AtomicBool::new(false) });
        Ok(Device { control, served, origin, name, queues: info.queues, size: sectors << 9, live: false })
    }

    /// Another device in the place of one that [`Device::let_go`] has deleted, under its names and of the volume `identity`: as `traits` say,
    /// with a queue for each of `threads`. Waits until those have let go of the former one's queues, and whoever still has it open of
    /// that. Given up once `given_up`.
    ///
    /// # Errors
    /// If they do not, or the kernel refuses. Then the volume has no device any more.
    pub fn renew(
        self,
        identity: &str,
        traits: &Traits,
        threads: usize,
        given_up: &dyn Fn() -> bool,
    ) -> Result<Device, UblkError> {
        let Device { control, served, name, .. } = self;
        let (id, deadline) = (served.id, Instant::now() + LETTING_GO);
        let hopeless = || given_up() || Instant::now() > deadline;
        while Arc::strong_count(&served) > 1 {
            if hopeless() {
                return Err(UblkError::Kept(id));
            }
            std::thread::sleep(PAUSE);
        }
        drop(served);
        // Whoever gave this up may have another device of that number by now.
        if given_up() {
            return Err(UblkError::Kept(id));
        }
        delete(&control, id, hopeless).map_err(|_| UblkError::Kept(id))?;
        let info = make(&control, token(identity), traits, threads, Some(id))?;
        Device::served_by_us(control, &info, Origin::Made, name)
    }

    /// Its node, as the kernel calls it.
    pub fn node(&self) -> String {
        format!("ublkb{}", self.served.id)
    }

    fn node_path(&self) -> PathBuf {
        Path::new("/dev").join(self.node())
    }

    /// The name that stays.
    pub fn path(&self) -> PathBuf {
        self.name.path()
    }

    /// Hands the node to a user, who is the only one then, with his group; nothing where it is his already.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn give_to(&self, owner: Owner) -> Result<(), UblkError> {
        const SHARED_BY_BOTH: u32 = 0o660;
        let (node, wanted) = (self.node_path(), Access { owner, mode: SHARED_BY_BOTH });
        let failed = |e| UblkError::os(format!("giving {} away", node.display()), e);
        if Access::of(&node).map_err(failed)? != wanted {
            wanted.put(&node).map_err(failed)?;
        }
        Ok(())
    }

    /// Bytes that its users see. A volume that has grown while they had it open is served with its former size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True if it is as large as `traits` say.
    pub fn is_as_large(&self, traits: &Traits) -> bool {
        self.size == traits.bytes()
    }

    /// Says when to look whether it is still open.
    pub fn watch(&self) -> Watch {
        Watch::of(&self.node_path())
    }

    /// Its queues, each for one thread.
    ///
    /// # Errors
    /// If their descriptors cannot be mapped.
    pub fn queues(&self) -> Result<Vec<Queue>, UblkError> {
        (0..self.queues)
            .map(|n| Queue::new(self.served.clone(), n).map_err(|e| UblkError::os("mapping a queue", e)))
            .collect()
    }

    /// Lets requests come, once the threads have the queues: returns when they do. Requests of its users to
    /// the last server are made again. Given up once `given_up`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn go_live(&mut self, given_up: impl Fn() -> bool) -> Result<(), UblkError> {
        let what = match self.origin {
            Origin::Made => uapi::START_DEV,
            Origin::Found => uapi::END_USER_RECOVERY,
        };
        // Before anything else: a name that is taken is a reason not to begin.
        self.name.refuse_other(&self.node())?;
        let refused = || self.served.refused.load(Ordering::Acquire) || given_up();
        let pid = u64::from(std::process::id());
        if let Err(e) = self.control.patient(what, self.served.id, pid, refused) {
            return Err(failed(what, e));
        }
        self.live = true;
        self.name.link(&self.node_path())?;
        Ok(())
    }

    /// Gives a live device another size.
    ///
    /// # Errors
    /// If the kernel cannot.
    pub fn resize(&mut self, bytes: u64) -> Result<(), UblkError> {
        if !self.control.can_resize() {
            return Err(UblkError::NoResize);
        }
        self.control
            .plain(uapi::UPDATE_SIZE, self.served.id, bytes >> 9)
            .map_err(|e| failed(uapi::UPDATE_SIZE, e))?;
        self.size = bytes >> 9 << 9;
        Ok(())
    }

    /// Stops it if nobody has it open, and nothing is left that somebody wrote to it; to be called while its requests are answered.
    /// Its remains are for [`Device::end`], once the threads have ended.
    pub fn let_go(&mut self) -> Left {
        // That is looked at first: the name is not to go now and then under who needs it to come back.
        if !self.live || users::opened_by_others(&self.node()) {
            return Left::Waiting;
        }
        // Whoever comes by its name from here on does not find it, and whoever came before is seen.
        let (node, id) = (self.node_path(), self.served.id);
        self.name.unlink(&node);
        let idle = Idle::hold(&self.node(), LOOKING);
        if idle.is_some() {
            match self.control.plain(uapi::STOP_DEV, id, 0) {
                Ok(()) => {
                    self.live = false;
                    return Left::Deleted;
                }
                Err(e) => tracing::warn!(device = id, error = %e, "a ublk device cannot be stopped"),
            }
        }
        self.put_name();
        Left::Waiting
    }

    /// Sees that a live device has its name.
    pub fn put_name(&self) {
        if !self.live || self.path().exists() {
            return;
        }
        if let Err(e) = self.name.link(&self.node_path()) {
            tracing::warn!(device = self.served.id, error = %e, "a ublk device cannot have its name");
        }
    }

    /// Deletes what [`Device::let_go`] stopped, or what never started.
    pub fn end(self) {
        let Device { control, served, origin, live, .. } = self;
        let id = served.id;
        let started = live || origin == Origin::Found && !is_dead(&control, id);
        drop(served);
        let deadline = Instant::now() + LOOKING;
        if !started && let Err(e) = delete(&control, id, || Instant::now() > deadline) {
            tracing::warn!(device = id, error = %e, "a ublk device cannot be deleted");
        }
    }
}

/// Deletes a stopped device. The kernel waits for the last who has it open; given up, it does so when that one has gone.
fn delete(control: &Control, id: u32, hopeless: impl Fn() -> bool) -> Result<(), Errno> {
    control.patient(uapi::DEL_DEV, id, 0, hopeless)
}

fn is_dead(control: &Control, id: u32) -> bool {
    matches!(control.info(id), Ok(Some(info)) if info.state == uapi::DEAD)
}

/// A number that tells the devices of a volume from all others. The kernel keeps it with the device, so that no file has to
/// survive for the device to be known again, and none can be wrong.
fn token(identity: &str) -> u64 {
    let digest = openssl::sha::sha256(format!("loligo ublk\0{identity}").as_bytes());
    u64::from_le_bytes(digest[..8].try_into().expect("eight of 32 bytes"))
}

/// The device that carries `token`.
fn find(control: &Control, token: u64) -> Result<Option<DeviceInfo>, UblkError> {
    let Ok(list) = std::fs::read_dir(LIST) else { return Ok(None) };
    let numbers = list.flatten().filter_map(|e| e.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok());
    for id in numbers {
        if let Some(info) = control.info(id)?.filter(|i| i.token == token) {
            return Ok(Some(info));
        }
    }
    Ok(None)
}

/// A new device, of number `id` where that is free: programs may know it by that.
fn make(
    control: &Control,
    token: u64,
    traits: &Traits,
    threads: usize,
    id: Option<u32>,
) -> Result<DeviceInfo, UblkError> {
    const ANY: u32 = u32::MAX;
    let mut info = DeviceInfo {
        queues: threads.clamp(1, usize::from(u16::MAX)) as u16,
        depth: DEPTH,
        most_bytes: MOST_BYTES,
        id: id.unwrap_or(ANY),
        flags: uapi::F_USER_RECOVERY
            | uapi::F_USER_RECOVERY_REISSUE
            | uapi::F_USER_COPY
            | uapi::F_CMD_IOCTL_ENCODE,
        token,
        ..DeviceInfo::default()
    };
    if id.is_none() || control.add(&mut info).is_err() {
        info.id = ANY;
        control.add(&mut info)?;
    }
    if let Err(why) = control.set_parameters(info.id, &traits.parameters()) {
        let _ = control.plain(uapi::DEL_DEV, info.id, 0);
        return Err(why);
    }
    Ok(info)
}

/// Makes the device ready for new queues, or nothing where it is gone, because nobody could miss it.
fn take_over(
    control: &Control,
    info: DeviceInfo,
    name: &Name,
    traits: &Traits,
) -> Result<Option<DeviceInfo>, UblkError> {
    let id = info.id;
    let deadline = Instant::now() + LETTING_GO;
    let quiesced = loop {
        let Some(now) = control.info(id)? else { return Ok(None) };
        match now.state {
            uapi::QUIESCED => break true,
            uapi::DEAD => break false,
            // The kernel notices the end of a server when that one's last I/O has ended.
            _ if Instant::now() > deadline || now.server_pid == std::process::id() as i32 => {
                return Err(UblkError::Served { id, pid: now.server_pid });
            }
            _ => std::thread::sleep(PAUSE),
        }
    };
    let delete = || {
        name.unlink(Path::new(&format!("/dev/ublkb{id}")));
        control.plain(uapi::DEL_DEV, id, 0).map(|()| None).map_err(|e| failed(uapi::DEL_DEV, e))
    };
    if !quiesced {
        return delete();
    }
    let then = control.parameters(id)?;
    if !traits.same(&then) {
        let open = users::in_use(&format!("ublkb{id}"));
        if !open {
            return delete();
        }
        if let Some(what) = traits.differs(&then) {
            return Err(UblkError::Changed { id, what });
        }
        tracing::warn!(
            device = id,
            "the volume has changed, and its ublk device is open: its users see the former one"
        );
    }
    loop {
        match control.plain(uapi::START_USER_RECOVERY, id, 0) {
            Ok(()) => return Ok(Some(info)),
            // A server was here and ended before it had taken a queue: that has been done.
            Err(Errno::INVAL) => return Ok(Some(info)),
            Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(Errno::BUSY) => return Err(UblkError::Served { id, pid: info.server_pid }),
            Err(e) => return Err(failed(uapi::START_USER_RECOVERY, e)),
        }
    }
}

/// Becomes the server of a device: the kernel lets one process open it.
fn open_server(id: u32) -> Result<std::fs::File, UblkError> {
    let path = format!("/dev/ublkc{id}");
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => return Ok(file),
            // Where udev makes the nodes they come a moment later.
            Err(e)
                if Instant::now() < deadline
                    && matches!(Errno::from_io_error(&e), Some(Errno::NOENT | Errno::BUSY)) =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(e) => return Err(UblkError::os(format!("opening {path}"), e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_told_apart_and_known_again() {
        assert_eq!(token("uuid:1"), token("uuid:1"));
        assert_ne!(token("uuid:1"), token("uuid:2"));
        assert_ne!(token(""), 0);
    }

    #[test]
    fn a_kernel_without_ublk_is_named_with_the_mend() {
        if Path::new("/dev/ublk-control").exists() {
            return println!("SKIP: ublk refusal: this kernel has ublk");
        }
        let why = super::super::available().unwrap_err().to_string();
        assert!(why.contains("modprobe ublk_drv") && why.contains("fuse:"), "{why}");
    }
}
