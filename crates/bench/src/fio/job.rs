//! The jobs that fio is given.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Direction and order of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Uniform random reads.
    RandRead,
    /// Uniform random writes.
    RandWrite,
    /// A random mix with this percentage of reads.
    RandMix(u8),
}

/// The engine by which fio reaches a local file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEngine {
    /// io_uring, at the job's depth.
    IoUring,
    /// The kernel's older asynchronous I/O, as an OSD uses it, at the job's depth.
    Libaio,
    /// One synchronous `pread`/`pwrite` at a time.
    Psync,
}

/// The target of the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An NBD export on a unix socket.
    Nbd {
        /// The socket.
        socket: PathBuf,
        /// The export's name; empty for the default export.
        export: String,
    },
    /// An NBD export on a TCP socket.
    NbdTcp {
        /// The address and port.
        address: String,
        /// The export's name.
        export: String,
    },
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// The way in which it is reached.
        engine: FileEngine,
        /// O_DIRECT.
        direct: bool,
    },
    /// An RBD image through librbd, in fio's own process.
    Rbd {
        /// Ceph's configuration file, which also says whether librbd caches.
        conf: PathBuf,
        /// The client's name without `client.`.
        id: String,
        /// The pool.
        pool: String,
        /// The image.
        image: String,
    },
}

/// Content that is written so that it can be checked later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Each block carries a header with its own address and a CRC32C: finds damage and misplaced blocks.
    Crc32c,
    /// Each block holds this word and its own address: finds a block that stepped back to an older version.
    Version(u32),
}

/// One fio job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Their target.
    pub target: Target,
    /// The network namespace of the load generator, if not this one.
    pub namespace: Option<String>,
    /// Direction and order.
    pub rw: Rw,
    /// Bytes per request.
    pub block: u64,
    /// Requests in flight (per process).
    pub depth: u32,
    /// Concurrent workers, each with its own connection.
    pub workers: u32,
    /// Run for this long, or until [`Job::total`] is done; without it, until the range has been covered once.
    pub time: Option<Duration>,
    /// Run for this long before, unmeasured.
    pub ramp: Duration,
    /// Start of the range, bytes.
    pub offset: u64,
    /// Length of the range, bytes; `None` is to the end.
    pub size: Option<u64>,
    /// Stop after this many bytes, where that is less than the range.
    pub total: Option<u64>,
    /// At most this many requests per second, for each worker and direction.
    pub rate_iops: Option<u32>,
    /// Content that can be checked later.
    pub verify: Option<Verify>,
    /// Seed of addresses and data; the same seed repeats the same run.
    pub seed: u64,
}

impl Job {
    /// A job of one worker over the whole target.
    pub fn new(target: Target, rw: Rw, block: u64, depth: u32) -> Job {
        Job {
            target,
            namespace: None,
            rw,
            block,
            depth,
            workers: 1,
            time: None,
            ramp: Duration::ZERO,
            offset: 0,
            size: None,
            total: None,
            rate_iops: None,
            verify: None,
            seed: 1,
        }
    }

    /// The same job for this long.
    pub fn lasting(mut self, time: Duration) -> Job {
        self.time = Some(time);
        self
    }

    /// The same job after this long of the same load, unmeasured.
    pub fn after(mut self, ramp: Duration) -> Job {
        self.ramp = ramp;
        self
    }

    /// The same job with addresses and data of this seed.
    pub fn seeded(mut self, seed: u64) -> Job {
        self.seed = seed;
        self
    }

    /// The same job from a network namespace.
    pub fn from_namespace(mut self, name: &str) -> Job {
        self.namespace = Some(name.to_owned());
        self
    }

    /// The same job within `size` bytes from `offset`.
    pub fn within(mut self, offset: u64, size: u64) -> Job {
        self.offset = offset;
        self.size = Some(size);
        self
    }

    /// The arguments that say what the job does, without those that say where its results go.
    pub fn args(&self) -> Vec<String> {
        let mut args = vec!["--name=loligo".to_owned(), "--thread=1".to_owned()];
        let mut put = |key: &str, value: String| args.push(format!("--{key}={value}"));
        match &self.target {
            Target::Nbd { socket, export } => {
                put("ioengine", "nbd".to_owned());
                put("uri", format!("nbd+unix:///{export}?socket={}", socket.display()));
            }
            Target::NbdTcp { address, export } => {
                put("ioengine", "nbd".to_owned());
                put("uri", format!("nbd://{address}/{export}"));
            }
            Target::File { path, engine, direct } => {
                let engine = match engine {
                    FileEngine::IoUring => "io_uring",
                    FileEngine::Libaio => "libaio",
                    FileEngine::Psync => "psync",
                };
                put("ioengine", engine.to_owned());
                put("filename", path.display().to_string());
                put("direct", u8::from(*direct).to_string());
                put("allow_file_create", "0".to_owned());
            }
            Target::Rbd { id, pool, image, .. } => {
                put("ioengine", "rbd".to_owned());
                put("clientname", id.clone());
                put("pool", pool.clone());
                put("rbdname", image.clone());
            }
        }
        let (rw, mix) = match self.rw {
            Rw::Read => ("read", None),
            Rw::Write => ("write", None),
            Rw::RandRead => ("randread", None),
            Rw::RandWrite => ("randwrite", None),
            Rw::RandMix(reads) => ("randrw", Some(reads)),
        };
        put("rw", rw.to_owned());
        if let Some(reads) = mix {
            put("rwmixread", reads.to_string());
        }
        put("bs", self.block.to_string());
        put("iodepth", self.depth.to_string());
        if self.workers > 1 {
            put("numjobs", self.workers.to_string());
        }
        if let Some(time) = self.time {
            if self.verify.is_none() && !matches!(self.rw, Rw::Read | Rw::Write) {
                // Every address independent of the last ones, instead of fio's default of each block once a pass.
                put("norandommap", "1".to_owned());
            }
            if self.total.is_none() {
                put("time_based", "1".to_owned());
            }
            put("runtime", format!("{}ms", time.as_millis()));
        }
        if self.ramp > Duration::ZERO {
            put("ramp_time", format!("{}ms", self.ramp.as_millis()));
        }
        if self.offset > 0 {
            put("offset", self.offset.to_string());
        }
        if let Some(size) = self.size {
            put("size", size.to_string());
        }
        if let Some(total) = self.total {
            put("io_size", total.to_string());
        }
        if let Some(rate) = self.rate_iops {
            put("rate_iops", rate.to_string());
        }
        // With its default of 1 fio takes one and the same seed whatever is asked for.
        put("randrepeat", "0".to_owned());
        put("randseed", self.seed.to_string());
        match self.verify {
            None => {}
            Some(Verify::Crc32c) => put("verify", "crc32c".to_owned()),
            Some(Verify::Version(word)) => {
                put("verify", "pattern".to_owned());
                put("verify_pattern", format!("0x{word:08x}%o"));
                put("verify_interval", self.block.to_string());
            }
        }
        args
    }

    /// Ceph's configuration file, where the target is an image: fio takes it from its environment.
    pub(super) fn conf(&self) -> Option<&Path> {
        match &self.target {
            Target::Rbd { conf, .. } => Some(conf),
            Target::Nbd { .. } | Target::NbdTcp { .. } | Target::File { .. } => None,
        }
    }

    /// The command as a user would type it.
    pub fn command_line(&self) -> String {
        let within = self.namespace.as_ref().map_or(String::new(), |name| format!("ip netns exec {name} "));
        let conf = self.conf().map_or(String::new(), |conf| format!("CEPH_CONF={} ", conf.display()));
        let mut line = format!("{conf}{within}fio");
        for arg in self.args() {
            line.push(' ');
            if arg.contains(['?', '&', ' ', '%']) {
                line.push_str(&format!("'{arg}'"));
            } else {
                line.push_str(&arg);
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_reads_as_the_fio_command_it_runs() {
        let target = Target::Nbd { socket: "/run/a.sock".into(), export: "vol".to_owned() };
        let mut job = Job::new(target, Rw::RandMix(70), 4096, 32).lasting(Duration::from_millis(2500));
        job = job.within(1 << 20, 64 << 20);
        job.rate_iops = Some(500);
        assert_eq!(
            job.command_line(),
            "fio --name=loligo --thread=1 --ioengine=nbd '--uri=nbd+unix:///vol?socket=/run/a.sock' --rw=randrw \
             --rwmixread=70 --bs=4096 --iodepth=32 --norandommap=1 --time_based=1 --runtime=2500ms --offset=1048576 \
             --size=67108864 --rate_iops=500 --randrepeat=0 --randseed=1"
        );
    }

    #[test]
    fn a_client_elsewhere_ends_with_its_time_or_its_bytes() {
        let target = Target::NbdTcp { address: "10.0.0.5:10809".to_owned(), export: "vol".to_owned() };
        let mut job = Job::new(target, Rw::Write, 65536, 1).lasting(Duration::from_secs(3));
        job.total = Some(1 << 20);
        assert_eq!(
            job.from_namespace("client").command_line(),
            "ip netns exec client fio --name=loligo --thread=1 --ioengine=nbd --uri=nbd://10.0.0.5:10809/vol --rw=write \
             --bs=65536 --iodepth=1 --runtime=3000ms --io_size=1048576 --randrepeat=0 --randseed=1"
        );
    }

    #[test]
    fn an_image_is_reached_with_the_cluster_in_the_environment() {
        let target = Target::Rbd {
            conf: "/lab/native.conf".into(),
            id: "loligo".to_owned(),
            pool: "rbd".to_owned(),
            image: "native".to_owned(),
        };
        assert_eq!(
            Job::new(target, Rw::RandWrite, 4096, 64).command_line(),
            "CEPH_CONF=/lab/native.conf fio --name=loligo --thread=1 --ioengine=rbd --clientname=loligo --pool=rbd \
             --rbdname=native --rw=randwrite --bs=4096 --iodepth=64 --randrepeat=0 --randseed=1"
        );
    }
}
