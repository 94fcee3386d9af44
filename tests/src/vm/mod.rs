//! A small virtual machine with a kernel of Debian: what needs modules, or pages, that the machine under the tests need not have.
//!
//! The machine boots from memory: busybox, the modules and programs that the tests name, the `loligo`
//! program, and a script, which is what it runs. The script's output arrives here line by line; its last line
//! carries its status.

mod archive;
mod arm;
mod debian;
mod files;
mod kernel;
mod platform;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::{Mutex, MutexGuard};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub use debian::Root;
pub use kernel::Kernel;
pub use platform::Platform;

/// The line that ends the output of a script.
const END: &str = "=== exit ";
/// Of the kernel, beside its console.
const OPTIONS: &str = "quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on \
                       systemd.getty_auto=no systemd.show_status=1";
/// One machine at a time: each has two processors, emulated, and figures are taken in some.
static ALONE: Mutex<()> = Mutex::new(());

/// A disk of the machine.
#[derive(Debug, Clone)]
pub struct Disk {
    /// A file, or a URI that qemu knows.
    pub source: String,
    /// Its own name.
    pub serial: String,
    /// Requests a second that it does at most.
    pub iops: Option<u32>,
}

impl Disk {
    /// The file `path` as a disk; its flushes are the file's.
    pub fn file(path: &Path, serial: &str) -> Disk {
        Disk { source: path.display().to_string(), serial: serial.to_owned(), iops: None }
    }

    /// The same, and no faster than `iops` requests a second.
    #[must_use]
    pub fn slow(self, iops: u32) -> Disk {
        Disk { iops: Some(iops), ..self }
    }

    fn drive(&self, id: &str) -> String {
        let limit = self.iops.map(|n| format!(",throttling.iops-total={n}")).unwrap_or_default();
        format!(
            "file={},if=none,id={id},format=raw,cache.direct=off,cache.no-flush=off,aio=threads,discard=unmap{limit}",
            self.source
        )
    }
}

/// A machine before it boots.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The script, run by busybox's sh, or by the system's own where there is one.
    pub script: String,
    /// Its disks: `/dev/vda`, `/dev/vdb`, ...
    pub disks: Vec<Disk>,
    /// Network interfaces on one wire, by the last bytes of their addresses: `52:54:00:00:00:NN`.
    pub nics: Vec<u8>,
    /// Megabytes; 1,536 where it is 0.
    pub memory: u32,
    /// A whole system to run it in, as the last disk.
    pub root: Option<Root>,
    /// Its processor and its kernel.
    pub platform: Platform,
    /// Files for it, by their names in `/run/vm`; those in `units` are units that systemd starts.
    pub files: Vec<(String, PathBuf)>,
    /// Programs of this build, in `/bin` there.
    pub programs: Vec<PathBuf>,
}

/// A running machine; dropping it ends it, as a power cut would.
#[derive(Debug)]
pub struct Vm {
    child: Child,
    lines: Receiver<String>,
    console: PathBuf,
    began: Instant,
    _dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// The end of a script.
#[derive(Debug)]
pub struct Outcome {
    /// Its status.
    pub status: i32,
    /// Its lines, without the last.
    pub lines: Vec<String>,
}

impl Outcome {
    /// The text after the first `key` and a blank at the beginning of a line.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.lines.iter().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '))
    }

    /// The same as a number.
    ///
    /// # Errors
    /// If there is no such line, or no number on it.
    pub fn number(&self, key: &str) -> Result<f64> {
        let text = self.value(key).with_context(|| format!("no line '{key}' in:\n{}", self.text()))?;
        text.trim().parse().with_context(|| format!("'{key} {text}' is no number"))
    }

    /// Everything it said.
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// The first of `programs` that is not here, with the package that has it, for a person to read.
fn lacking(programs: &[(&str, &str)]) -> Option<String> {
    let (program, package) = programs.iter().find(|(program, _)| !crate::skip::installed(program))?;
    Some(format!("{program} is missing (apt-get install {package})"))
}

/// The reason why there can be no machine here, for a person to read.
pub fn missing() -> Option<String> {
    let emulator = Platform::X86.emulator();
    let why = lacking(&[emulator, ("busybox", "busybox-static"), ("fio", "fio"), ("xz", "xz-utils")]);
    if why.is_some() {
        return why;
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Some("the machine is an x86-64 one, and runs this program".to_owned());
    }
    Kernel::get().err().map(|why| format!("no kernel for the machine: {why:#}"))
}

/// The reason why there can be no machine with Debian's newest kernel here, for a person to read.
pub fn newest_missing() -> Option<String> {
    missing().or_else(|| Kernel::newest().err().map(|why| format!("{why:#}")))
}

/// The reason why there can be no machine for aarch64 here, for a person to read.
pub fn arm_missing() -> Option<String> {
    if crate::server::aarch64_program().is_none() {
        return Some(
            "LOLIGO_AARCH64_BIN names no program: make test-aarch64 builds one, and sets it".to_owned(),
        );
    }
    let compiler = (Platform::Arm16k.strip(), "gcc-aarch64-linux-gnu");
    lacking(&[Platform::Arm16k.emulator(), compiler, ("xz", "xz-utils")]).or_else(|| {
        // Whether the archive answers is known when it is asked: that takes two minutes, once.
        Root::lacks_tools()
            .or_else(|| arm::ready().err().map(|why| format!("no Debian for aarch64: {why:#}")))
    })
}

impl Vm {
    /// Boots.
    ///
    /// # Errors
    /// If there is no kernel, or qemu does not start.
    pub fn boot(plan: &Plan) -> Result<Vm> {
        let alone = ALONE.lock();
        let kernel = match plan.platform {
            Platform::X86 => Kernel::get()?,
            Platform::X86Newest => Kernel::newest()?,
            Platform::Arm16k => &arm::ready()?.kernel,
        };
        let dir = tempfile::tempdir_in(kernel::cache_dir())?;
        let initrd = dir.path().join("initrd");
        files::image(kernel, plan, &initrd)?;
        let console = kernel::cache_dir().join(format!("console-{}.log", std::process::id()));
        let socket = dir.path().join("out");
        let listener = UnixListener::bind(&socket)?;
        let memory = if plan.memory == 0 { 1536 } else { plan.memory };
        let mut qemu = plan.platform.command();
        qemu.args(["-smp", "2", "-nodefaults", "-no-reboot", "-display", "none", "-m", &memory.to_string()])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initrd)
            .arg("-append")
            .arg(format!("console={} {OPTIONS}", plan.platform.console()))
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-device", "virtio-serial-pci", "-chardev"])
            .arg(format!("socket,id=out,path={}", socket.display()))
            .args(["-device", "virtconsole,chardev=out"]);
        for (n, disk) in plan.disks.iter().enumerate() {
            qemu.arg("-drive").arg(disk.drive(&format!("d{n}")));
            qemu.arg("-device").arg(format!("virtio-blk-pci,drive=d{n},serial={},num-queues=2", disk.serial));
        }
        for nic in &plan.nics {
            qemu.args(["-netdev", &format!("hubport,hubid=0,id=n{nic}"), "-device"]);
            qemu.arg(format!("e1000e,netdev=n{nic},mac=52:54:00:00:00:{nic:02x}"));
        }
        if let Some(root) = &plan.root {
            qemu.arg("-drive").arg(format!("file={},if=none,id=root,format=qcow2", root.image.display()));
            qemu.args(["-device", "virtio-blk-pci,drive=root,serial=root"]);
        }
        let log = std::fs::File::create(dir.path().join("qemu.log"))?;
        let child = qemu
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} does not run", plan.platform.emulator().0))?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let Ok((stream, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if send.send(text).is_err() {
                    return;
                }
            }
        });
        Ok(Vm { child, lines, console, began: Instant::now(), _dir: dir, _alone: alone })
    }

    /// The next line that the script prints.
    ///
    /// # Errors
    /// If none comes in time, or the machine has ended.
    pub fn line(&mut self, limit: Duration) -> Result<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => {
                println!("[{:6.1}] {line}", self.began.elapsed().as_secs_f64());
                Ok(line)
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("the machine said nothing for {limit:?}; its console:\n{}", self.words())
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the machine ended without a status; its console:\n{}", self.words())
            }
        }
    }

    /// A line that comes within a moment, if one does.
    pub fn rest(&mut self) -> Option<String> {
        self.lines.recv_timeout(Duration::from_millis(300)).ok()
    }

    /// Waits for the end of the script.
    ///
    /// # Errors
    /// If the machine hangs or crashes.
    pub fn outcome(&mut self, limit: Duration) -> Result<Outcome> {
        let deadline = Instant::now() + limit;
        let mut lines = Vec::new();
        loop {
            let line = self.line(deadline.saturating_duration_since(Instant::now()))?;
            if let Some(status) = line.strip_prefix(END) {
                let status = status.trim().parse().context("the script's status")?;
                return Ok(Outcome { status, lines });
            }
            lines.push(line);
        }
    }

    /// Waits until the machine has switched itself off.
    ///
    /// # Errors
    /// If it does not.
    pub fn off(mut self, limit: Duration) -> Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        let mut lines = Vec::new();
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "the machine is still on; its console:\n{}", self.words());
            lines.extend(self.rest());
        }
        while let Some(line) = self.rest() {
            lines.push(line);
        }
        Ok(lines)
    }

    /// The last lines of the kernel's console.
    fn words(&self) -> String {
        let all = std::fs::read(&self.console).unwrap_or_default();
        let all = String::from_utf8_lossy(&all);
        let lines: Vec<&str> = all.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.end();
    }
}

/// Boots, runs `plan` to its end and expects success.
///
/// # Errors
/// If the machine fails, or the script says that something does.
pub fn run(plan: &Plan, limit: Duration) -> Result<Outcome> {
    let mut vm = Vm::boot(plan)?;
    let outcome = vm.outcome(limit)?;
    ensure!(outcome.status == 0, "the script failed with status {}:\n{}", outcome.status, outcome.text());
    Ok(outcome)
}
