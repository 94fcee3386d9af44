//! Effects of a start that outlive it: the kernel's device, the core's label, the daemon's note. Each is begun in this order, and
//! taken back in the other if the start comes to nothing. Sockets, mount points and names of devices are guards of their own.

use crate::cache;
use crate::core::OpenCore;
use crate::held_cache::HeldCache;
use crate::last_cache::{CoreNames, LastCache};
use crate::options::ServeOptions;
use crate::rbd::HeldImage;
use crate::ublk::{self, Devices};
use anyhow::{Context, Result};
use loligo_export::ublk::Traits;
use loligo_format::core_label::CoreLabel;
use loligo_format::units::BLOCK;

/// Remembers what a volume is served through; nothing: the core is served bare.
pub(crate) type Note<'a> = &'a dyn Fn(Option<LastCache>) -> Result<()>;

/// A step of a start, after which a test can have it fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Places where clients come are claimed.
    Claim,
    /// The core is open.
    Core,
    /// The cache is open, and in use by what its superblock says.
    Cache,
    /// The kernel's device is claimed.
    Kernel,
    /// The core's label says that the cache may have what it lacks, or that none has.
    Label,
    /// It is noted what is served.
    Note,
    /// The threads run.
    Threads,
    /// Clients may come.
    Exports,
}

impl Phase {
    /// In the order of a start.
    #[cfg(test)]
    const ALL: [Phase; 8] = [
        Phase::Claim,
        Phase::Core,
        Phase::Cache,
        Phase::Kernel,
        Phase::Label,
        Phase::Note,
        Phase::Threads,
        Phase::Exports,
    ];

    /// It is over.
    pub(super) fn is_over(self) -> Result<()> {
        #[cfg(test)]
        if tests::FAILS.get() == Some(self) {
            anyhow::bail!("the start is to fail after {self:?}");
        }
        Ok(())
    }
}

/// The last state of a cache that was found stopped cleanly.
#[derive(Debug)]
pub(super) struct Finals {
    /// The last sequence of each engine.
    pub(super) last_seqs: Vec<u64>,
    /// Blocks that the core lacks.
    pub(super) dirty_blocks: u64,
}

/// The parts that have been begun.
#[derive(Debug, Default)]
pub(super) struct StartUndo {
    finals: Option<Finals>,
    pub(super) kernel: Option<Devices>,
    labelled: bool,
    /// The former label of a core that is to be served bare.
    former: Option<CoreLabel>,
    noted: bool,
}

/// Of what is served.
pub(super) struct Of<'a> {
    pub(super) options: &'a ServeOptions,
    pub(super) held: Option<&'a HeldCache>,
    /// The names of its core.
    pub(super) known_as: &'a CoreNames,
    pub(super) note: Note<'a>,
}

impl Of<'_> {
    /// The record that is kept of the cache.
    pub(super) fn last(&self, dirty_bytes: Option<u64>) -> Option<LastCache> {
        let (held, cache) = (self.held?, self.options.cache.as_ref()?);
        Some(self.known_as.cache(&cache.path, held.uuid.clone(), dirty_bytes, false))
    }
}

impl StartUndo {
    /// Nothing, of a cache with these `finals`.
    pub(super) fn with(finals: Option<Finals>) -> StartUndo {
        StartUndo { finals, ..StartUndo::default() }
    }

    /// Begins all of it, after everything that can be refused. `through`: the cache does not get ahead of the core.
    pub(super) fn begin(
        &mut self,
        of: &Of<'_>,
        core: &mut OpenCore,
        (traits, threads): (&Traits, usize),
        through: bool,
    ) -> Result<()> {
        Phase::Cache.is_over()?;
        self.kernel = Some(Devices::claim(of.options, &ublk::identity(core), traits, threads)?);
        Phase::Kernel.is_over()?;
        match (&mut core.home, of.held) {
            (Some(home), Some(held)) => {
                let superblock = held.superblock.lock().clone();
                home.attach(&superblock, &held.file, through)?;
                self.labelled = true;
            }
            (Some(home), None) => {
                // Kept before: one that cannot be written may be all the same.
                self.former = Some(home.label());
                home.void()?;
            }
            (None, _) => {}
        }
        Phase::Label.is_over()?;
        (of.note)(of.last(None))?;
        self.noted = true;
        Phase::Note.is_over()
    }

    /// Takes all of it back, with nobody served and no thread of the volume begun: a cache that was found stopped cleanly is left so. The label and
    /// the note of any other say what they said, that it is not known what the core lacks.
    pub(super) fn take_back(
        self,
        why: anyhow::Error,
        of: &Of<'_>,
        core: &mut OpenCore,
        image: Option<&mut HeldImage>,
    ) -> anyhow::Error {
        let StartUndo { finals, kernel, labelled, former, noted } = self;
        if let Some(kernel) = kernel {
            kernel.end();
        }
        if let (Some(former), Some(home)) = (former, &mut core.home) {
            let restored = home.restore(former).context("the core's label could not be put back");
            return beside(why, restored);
        }
        let (Some(finals), Some(held)) = (finals, of.held) else { return why };
        let dirty = finals.dirty_blocks;
        let mut undone = Ok(());
        if noted {
            let note = (of.note)(of.last(Some(dirty * BLOCK)));
            undone = undone.and(note.context("it could not be noted that it is not served"));
        }
        if let Some(home) = core.home.as_mut().filter(|_| labelled) {
            undone = undone.and(home.detach(dirty * BLOCK, &held.file));
        }
        undone = undone.and(cache::close_unserved(&mut held.file.sync_io(), &finals.last_seqs, dirty));
        if let Some(image) = image.filter(|_| dirty == 0 && undone.is_ok()) {
            // Given back without its mark: the cache that this names may go with the start.
            image.may_be_dirty = false;
        }
        beside(why, undone)
    }
}

/// The reason why a start failed, and what of it could not be taken back.
pub(super) fn beside(why: anyhow::Error, undone: Result<()>) -> anyhow::Error {
    match undone {
        Ok(()) => why,
        Err(also) => also.context(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{ControlApi, ServedApi};
    use crate::signals::StopSignals;
    use crate::volume::Volume;
    use crate::volume_state::VolumeState;
    use loligo_client::api::definition::Leave;
    use loligo_client::api::definition::VolumeConfig;
    use loligo_export::Listener;
    use std::cell::{Cell, RefCell};
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;

    thread_local! {
        pub(super) static FAILS: Cell<Option<Phase>> = const { Cell::new(None) };
    }

    /// A control API that nobody asks anything.
    struct Silent;

    #[derive(Debug)]
    struct Socket(#[expect(dead_code, reason = "it stands for the name")] Listener);

    impl ServedApi for Socket {}

    impl ControlApi for Silent {
        fn serve_volume(&self, socket: Listener, _: Arc<VolumeState>) -> Result<Box<dyn ServedApi>> {
            Ok(Box::new(Socket(socket)))
        }
    }

    /// Names the folder of the volume for the process that the starts are tried in: sockets lie where the environment says.
    const DIR: &str = "LOLIGO_TEST_STARTS";

    fn options(dir: &Path, bare: bool) -> ServeOptions {
        let at = dir.display();
        let cache =
            format!("cache = \"{at}/cache\"\ncache-size = \"24m\"\nmode = \"wb\"\ndata-offset = \"1m\"\n");
        let cache = if bare { "" } else { &cache };
        let text = format!("core = \"{at}/core\"\n{cache}listen = [\"unix:{at}/nbd\"]\n");
        let config: VolumeConfig = toml::from_str(&text).unwrap();
        ServeOptions::of(&config, "v", Leave::default()).unwrap()
    }

    /// The same of a core without a label.
    fn unlabelled(dir: &Path) -> ServeOptions {
        let mut o = options(dir, false);
        o.core = dir.join("plain").display().to_string().parse().unwrap();
        o.data_offset = None;
        o.cache.as_mut().unwrap().path = dir.join("plain.cache");
        o
    }

    /// Tries the start, which fails in `phase` or not at all; what was noted.
    fn start(dir: &Path, phase: Option<Phase>, control: &Silent) -> Vec<Option<Option<u64>>> {
        start_as(options(dir, false), phase, control)
    }

    fn start_as(options: ServeOptions, phase: Option<Phase>, control: &Silent) -> Vec<Option<Option<u64>>> {
        let (signals, _stopper) = StopSignals::driven();
        let noted = RefCell::new(Vec::new());
        let note = |last: Option<LastCache>| {
            noted.borrow_mut().push(last.map(|l| l.dirty_bytes));
            Ok(())
        };
        FAILS.set(phase);
        let started = Volume::start(options, &signals, control, &note);
        FAILS.set(None);
        match (started, phase) {
            (Ok(volume), None) => assert_eq!(volume.stop(&signals).unwrap(), 0),
            (Err(why), Some(phase)) => assert!(format!("{why:#}").contains(&format!("{phase:?}")), "{why:#}"),
            (started, phase) => panic!("{phase:?}: {started:?}"),
        }
        noted.into_inner()
    }

    /// Run by the test below, in a process with a folder of its own.
    #[test]
    fn in_a_process_of_its_own() {
        let Some(dir) = std::env::var_os(DIR).map(std::path::PathBuf::from) else { return };
        let control = Silent;
        std::fs::File::create(dir.join("core")).and_then(|f| f.set_len(64 << 20)).unwrap();
        assert_eq!(start(&dir, None, &control), [Some(None)]);
        let label = || std::fs::read(dir.join("core")).unwrap()[..4096].to_vec();
        let clean_in = |cache: &str| {
            let file = loligo_block::DeviceFile::open(dir.join(cache), &Default::default()).unwrap();
            let sb = loligo_format::superblock::Superblock::load(&mut loligo_block::SyncFile::new(file));
            sb.unwrap().clean
        };
        let clean = || clean_in("cache");
        let says = |raw: &[u8]| loligo_format::core_label::CoreLabel::decode(raw).unwrap().dirty_bytes;
        assert_eq!((says(&label()), clean()), (Some(0), true));
        for phase in Phase::ALL {
            let noted = start(&dir, Some(phase), &control);
            let last = noted.last().copied();
            let begun = matches!(phase, Phase::Note | Phase::Threads | Phase::Exports);
            assert_eq!(last, begun.then_some(Some(Some(0))), "{phase:?}: the note is taken back: {noted:?}");
            assert_eq!((says(&label()), clean()), (Some(0), true), "{phase:?}: label and cache");
            for left in ["nbd", "v.sock"] {
                assert!(!dir.join(left).exists(), "{phase:?}: {left} is left");
            }
            assert_eq!(start(&dir, None, &control), [Some(None)], "{phase:?}: it can be started again");
        }
        let head = || std::fs::read(dir.join("core")).unwrap()[..1 << 20].to_vec();
        let before = head();
        for phase in &Phase::ALL[..6] {
            start_as(options(&dir, true), Some(*phase), &control);
            assert!(head() == before, "{phase:?}: a bare start that failed has changed the label");
        }
        std::fs::File::create(dir.join("plain")).and_then(|f| f.set_len(64 << 20)).unwrap();
        start_as(unlabelled(&dir), None, &control);
        for phase in &Phase::ALL[..6] {
            start_as(unlabelled(&dir), Some(*phase), &control);
            assert!(clean_in("plain.cache"), "{phase:?}: a core without a label has its cache as it was");
        }
        start_as(options(&dir, true), None, &control);
        assert!(head() != before, "the core was served without its cache");
    }

    #[test]
    fn a_start_that_fails_in_any_phase_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let test = "volume::undo::tests::in_a_process_of_its_own";
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(DIR, dir.path())
            .env("LOLIGO_RUNTIME_DIR", dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
        assert!(said.contains("1 passed"), "{said}");
    }
}
