//! Figures of RBD images as cores: a cached volume in front of an image, against librbd on the same cluster in the same run.
//!
//! Native clients have an image of their own, of the same size and written whole like the cached one, so that the cached volume
//! need not be detached between two runs. It is flushed before each native run and idle during it.

mod article;
mod cached;
mod ceiling;
mod cells;
mod cluster;
mod full;
mod processor;
pub(crate) mod read;
mod snapshot;
mod write;

use std::time::Duration;

use anyhow::{Result, ensure};
use loligo_lab::config::{Data, Kind, LabConfig};
use loligo_lab::layout::Layout;
use loligo_lab::state::State;

pub(crate) use cached::Cached;
pub(crate) use cells::{Before, Both, Cell, Group};
pub use cluster::Source;
pub(crate) use cluster::{Cluster, Librbd, image_name};

use crate::bed::{Bed, Place};
use crate::folder::LAB;
use crate::marks::{Outcome, Record, Words};
use crate::units;

/// Every figure there is.
pub const FIGURES: [u8; 7] = [1, 2, 3, 4, 5, 6, 7];

/// Bytes of an OSD besides its objects. RocksDB's logs are preallocated, 280 MiB at a time, and an OSD ends where it finds no
/// room for one: 1 GiB was seen to be too little within minutes of small writes.
const OSD_REST: u64 = 3 << 30;
/// Bytes of a lab besides its OSDs: the monitor's store, logs.
const LAB_REST: u64 = 512 << 20;
/// OSDs on modelled disks.
const HDD: Data = Data::Kind(Kind::Hdd);

const WORDS: Words = Words {
    title: "Loligo: an RBD image through a cache",
    summary: "The same loads on a real Ceph cluster: librbd without its cache, and a cached volume in front of an image.",
    heads: ["librbd, no cache", "librbd as shipped", "cached"],
    sides: ["librbd", "cached"],
};

/// The settings by which the figures are measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder, interrupt.
    pub place: Place,
    /// The source of the cluster.
    pub source: Source,
    /// A selection of [`FIGURES`].
    pub figures: Vec<u8>,
    /// Size of both images, bytes: at least four times the OSDs' caches together, so that reads come from the disks.
    pub image: u64,
    /// Size of the cache that is filled with dirty data, bytes. Reads have one that holds the image.
    pub cache: u64,
    /// Pairs of runs.
    pub rounds: usize,
    /// Length of a run.
    pub time: Duration,
    /// The time for which a full cache is written to before it is measured.
    pub settle: Duration,
    /// The time for which writes are looked at before a snapshot.
    pub minute: Duration,
    /// Block sizes of the matrix, bytes.
    pub blocks: Vec<u64>,
    /// The way in which the cache destages, as `--destage` takes it.
    pub destage: Option<String>,
    /// Fast disks under the OSDs: what is asked of reads differs.
    pub fast: bool,
}

impl Options {
    /// Images of 1 GiB, a cache of 256 MiB, five pairs of 20 s, a minute before where a full cache is to settle.
    pub fn new(place: Place, lab: LabConfig) -> Options {
        Options {
            place,
            fast: lab.data != HDD,
            source: Source::Lab(Box::new(lab)),
            figures: FIGURES.to_vec(),
            image: 1 << 30,
            cache: 256 << 20,
            rounds: 5,
            time: Duration::from_secs(20),
            settle: Duration::from_secs(60),
            minute: Duration::from_secs(60),
            blocks: [4, 16, 64, 256, 1024, 4096].map(|kib| kib << 10).to_vec(),
            destage: None,
        }
    }

    /// Shorter and smaller: to see that everything works, not to publish.
    pub fn quick(mut self) -> Options {
        self.image = 768 << 20;
        self.cache = 64 << 20;
        self.rounds = 2;
        self.time = Duration::from_secs(5);
        self.settle = Duration::from_secs(5);
        self.minute = Duration::from_secs(8);
        self.blocks = [4, 64, 4096].map(|kib| kib << 10).to_vec();
        self
    }

    /// The same on another cluster.
    ///
    /// # Errors
    /// Where a lab is named and there is none.
    pub fn on(mut self, source: Source) -> Result<Options> {
        if let Source::Running(dir) = &source {
            self.fast = State::of(&Layout::at(dir)?)?.config.data != HDD;
        }
        self.source = source;
        Ok(self)
    }

    /// Bytes of a cache that the image fills to nine tenths.
    pub(crate) fn roomy(&self) -> u64 {
        (self.image / 9 * 10).next_multiple_of(1 << 20)
    }

    /// The lab as it is made: OSDs with room for both images, and for what a snapshot keeps of one until it has been trimmed away,
    /// and no more, as BlueStore spreads over all it is given.
    fn sized(&self, lab: &LabConfig) -> LabConfig {
        let images = if self.figures.contains(&6) { 3 } else { 2 };
        let images = images * self.image * u64::from(lab.copies()) / u64::from(lab.osds.max(1));
        LabConfig { osd_size: Some((images / 4 * 5 + OSD_REST).to_string()), ..lab.clone() }
    }

    /// Free space that a run needs, bytes: the lab, a cache, and a raw file beside it.
    fn need(&self) -> Result<u64> {
        let lab = match &self.source {
            Source::Lab(lab) => self.sized(lab).osd_bytes()? * u64::from(lab.osds) + LAB_REST,
            Source::Running(_) | Source::Given { .. } => 0,
        };
        Ok(lab + self.roomy().max(self.cache) + self.image + (64 << 20))
    }
}

/// A run in progress.
pub(crate) struct Bench<'a> {
    pub(crate) opts: &'a Options,
    pub(crate) bed: &'a Bed,
    pub(crate) cluster: &'a Cluster,
    /// The image that native clients have.
    pub(crate) native: String,
    /// The image behind the cached volume.
    pub(crate) image: String,
    pub(crate) record: Record,
}

/// Measures the figures.
///
/// # Errors
/// Where the cluster does not come up, a server or fio fails, or after an interrupt. A missed mark is no error.
pub fn run(opts: &Options) -> Result<Outcome> {
    ensure!(opts.rounds > 0, "at least one round is needed");
    ensure!(
        opts.figures.iter().all(|figure| FIGURES.contains(figure)),
        "there are figures 1 to 7, not {:?}",
        opts.figures
    );
    on_cluster(opts, |bench| {
        bench.figures()?;
        let mut setup = bench.setup();
        let [cache, roomy] = [opts.cache, opts.roomy()].map(|n| units::bytes(n as f64));
        let words = format!("{cache} for writes (figures 1, 2, 5, 6, 7), {roomy} for reads (3, 4)");
        setup.push(("Cache".to_owned(), words));
        let runs = format!("{} pairs of {} s, medians", opts.rounds, opts.time.as_secs_f64());
        setup.push(("Runs".to_owned(), runs));
        Ok(bench.record.outcome(&WORDS, bench.bed.facts(), setup))
    })
}

/// Brings a cluster with two written images up for `work`; nothing stays of it.
pub(crate) fn on_cluster<T>(opts: &Options, work: impl FnOnce(&mut Bench<'_>) -> Result<T>) -> Result<T> {
    let record = Record::new();
    let place = Place { verbose: false, ..opts.place.clone() };
    let bed = Bed::new(&place, opts.need()?)?;
    let source = match &opts.source {
        Source::Lab(lab) => Source::Lab(Box::new(opts.sized(lab))),
        there => there.clone(),
    };
    let mut cluster = Cluster::new(&bed, &place, LAB, &source, &|text| record.say(text))?;
    record.say(&format!("writing two images of {}", units::bytes(opts.image as f64)));
    let native = cluster.image(&bed, "native", opts.image)?;
    let image = cluster.image(&bed, "cached", opts.image)?;
    work(&mut Bench { opts, bed: &bed, cluster: &cluster, native, image, record })
}

impl<'a> Bench<'a> {
    fn figures(&mut self) -> Result<()> {
        let asked = |figure: u8| self.opts.figures.contains(&figure);
        let (on_small, on_roomy) = ([1, 5, 2, 6, 7].map(asked), [3, 4].map(asked));
        if on_small.contains(&true) {
            let mut cached = self.serve("small", &self.image, self.opts.cache, "wb")?;
            let [sustained, depths, writes, snapshots, processor] = on_small;
            if sustained {
                full::sustained(self, &mut cached)?;
            }
            if depths {
                full::depths(self, &mut cached)?;
            }
            if writes {
                write::run(self, &mut cached)?;
            }
            if processor {
                processor::run(self, &mut cached)?;
            }
            // Last: what comes after a snapshot pays for it for a while.
            if snapshots {
                snapshot::run(self, &mut cached)?;
            }
            cached.end()?;
        }
        if on_roomy.contains(&true) {
            let mut cached = self.serve("roomy", &self.image, self.opts.roomy(), "wb")?;
            let [reads, article] = on_roomy;
            if reads {
                read::run(self, &mut cached)?;
            }
            if article {
                article::run(self, &mut cached)?;
            }
            cached.end()?;
        }
        Ok(())
    }

    /// The setup of the figures.
    pub(crate) fn setup(&self) -> Vec<(String, String)> {
        let image = units::bytes(self.opts.image as f64);
        let words = format!("two of {image}, written whole: the cached one and one of native clients");
        let images = ("Images".to_owned(), words);
        let small = match &self.opts.source {
            Source::Lab(lab) => 4 * u64::from(lab.osds) * loligo_lab::conf::OSD_CACHE > self.opts.image,
            Source::Running(_) | Source::Given { .. } => false,
        };
        let words =
            "the images are smaller than four times the OSDs' caches: native reads come from them in part";
        let note = small.then(|| ("Mind".to_owned(), words.to_owned()));
        self.cluster.facts.iter().cloned().chain([images]).chain(note).collect()
    }

    /// Serves one of the images through a new cache.
    pub(crate) fn serve(
        &self,
        name: &'static str,
        image: &str,
        cache_bytes: u64,
        mode: &'static str,
    ) -> Result<Cached<'a>> {
        self.record.say(&format!("serving an image through a cache of {}", units::bytes(cache_bytes as f64)));
        let core = self.cluster.core(image);
        Cached::start(self.bed, name, core, cache_bytes, mode, self.opts.destage.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osds_hold_both_images_and_the_space_asked_for_holds_the_osds() {
        let place = Place {
            binary: "loligo".into(),
            dir: "/".into(),
            stop: crate::interrupt::Interrupt::default(),
            verbose: false,
        };
        let o = Options::new(place, LabConfig::default());
        let lab = o.sized(&LabConfig::default());
        let osd = lab.osd_bytes().unwrap();
        assert!(osd > 3 * o.image * 6 / 5 + (2 << 30) && osd < 8 * o.image, "{osd}");
        let without = Options { figures: vec![1], ..o.clone() }.sized(&LabConfig::default());
        assert!(without.osd_bytes().unwrap() < osd, "no snapshot is taken");
        assert!(o.need().unwrap() > 3 * osd + o.roomy());
        assert!(o.roomy() * 9 / 10 >= o.image);
        let there = o.on(Source::Given {
            conf: "/c".into(),
            id: "a".to_owned(),
            keyring: None,
            pool: "rbd".to_owned(),
        });
        assert!(there.unwrap().need().unwrap() < 3 * osd);
    }
}
