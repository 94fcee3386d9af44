//! A folder with cores and a configuration, and the daemon over them.

use loligo_tests::cli::Cli;
use loligo_tests::history::{Crash, History};
use loligo_tests::line::Line;
use loligo_tests::load::{End, Load};
use loligo_tests::server::Server;
use serde_json::Value;
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of a core.
pub const CORE: u64 = 64 << 20;
/// A volume that takes longer to get somewhere does not.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The folder.
pub struct Site {
    pub dir: tempfile::TempDir,
    cli: Cli,
}

impl Deref for Site {
    type Target = Cli;

    fn deref(&self) -> &Cli {
        &self.cli
    }
}

impl Site {
    /// With these cores, all holes, and a configuration of these volumes, each a write-back one with a 24 MiB cache.
    pub fn new(volumes: &[&str]) -> Site {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let site = Site { cli: Cli::new(dir.path()), dir };
        volumes.iter().for_each(|v| site.core(v));
        site.configure(&volumes.iter().map(|v| site.section(v)).collect::<String>());
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes the core of a volume.
    pub fn core(&self, volume: &str) {
        std::fs::File::create(self.path(&format!("{volume}.core")))
            .and_then(|f| f.set_len(CORE))
            .expect("a core");
    }

    /// The section of a volume in the configuration.
    pub fn section(&self, volume: &str) -> String {
        let dir = self.dir.path().display();
        format!(
            "[volume.{volume}]\ncore = \"{dir}/{volume}.core\"\ncache = \"{dir}/{volume}.cache\"\ncache-size = \"24m\"\n\
             mode = \"wb\"\nlisten = [\"unix:{dir}/{volume}.nbd\"]\n"
        )
    }

    /// Writes the configuration.
    pub fn configure(&self, volumes: &str) {
        let text = format!("[daemon]\nstate-dir = \"{}\"\n{volumes}", self.path("state").display());
        std::fs::write(self.path("loligod.toml"), text).expect("a configuration");
    }

    /// Starts the daemon and waits until it is ready.
    pub fn daemon(&self) -> Server {
        self.cli.daemon(&self.path("loligod.toml"))
    }

    /// A volume as the daemon lists it.
    pub fn show(&self, volume: &str) -> Value {
        serde_json::from_str(&self.ok(&["volume", "show", volume, "--json"])).expect("JSON")
    }

    /// Its state in a word, and why.
    pub fn status(&self, volume: &str) -> (String, String) {
        let status = &self.show(volume)["status"];
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        (text("state"), text("why"))
    }

    /// Waits until a volume has come to `state`; why it is so.
    pub fn wait_for(&self, volume: &str, state: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (now, why) = self.status(volume);
            if now == state {
                return why;
            }
            assert!(Instant::now() < deadline, "{volume} is {now} and not {state}: {why}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until there is no such volume any more.
    pub fn wait_gone(&self, volume: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.cli.loligo(&["volume", "show", volume]);
            let words = String::from_utf8_lossy(&shown.stderr);
            if words.contains(&format!("there is no volume '{volume}'")) {
                return;
            }
            assert!(Instant::now() < deadline, "{volume} is still there: {words}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A client of a volume.
    pub fn load(&self, volume: &str) -> Load {
        Load::connect(&self.path(&format!("{volume}.nbd")), volume, 1).expect("a connection")
    }

    /// A client that asks for one thing at a time.
    pub fn line(&self, volume: &str) -> Line {
        Line::connect(&self.path(&format!("{volume}.nbd")), volume).expect("a connection")
    }

    /// Every block of a volume has what a client may expect there.
    pub fn verified(&self, volume: &str, history: &mut History, after: Option<Crash>) {
        assert_eq!(self.load(volume).verify(history, after).expect("right data"), End::Done, "{volume}");
    }

    /// Asks the daemon, and hangs up once it has answered; its whole answer.
    pub fn ask(&self, socket: &str, request: &[u8]) -> Vec<u8> {
        let mut stream = UnixStream::connect(self.path(socket)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(request).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        answer
    }

    /// Asks as a program without manners would, which does not say more and waits for each part of the answer so long only; what came.
    pub fn mutter(&self, socket: &str, bytes: &[u8], patience: Duration) -> Vec<u8> {
        let mut stream = UnixStream::connect(self.path(socket)).expect("it listens");
        stream.set_read_timeout(Some(patience)).expect("a timeout");
        // It may have hung up in the middle of nonsense.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }
}
