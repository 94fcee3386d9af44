//! A rule as its file has it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file of rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) version: u32,
    pub(super) group: String,
    /// Names the group for people.
    #[serde(rename = "title")]
    pub(super) _title: String,
    #[serde(rename = "rule")]
    pub(super) rules: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name, for good: `MEM-01`.
    pub id: String,
    /// Its group, by the file.
    #[serde(skip_deserializing)]
    pub group: String,
    /// A few words.
    pub title: String,
    /// What becomes of it.
    pub kind: Kind,
    /// The objects that it is asked of, one by one.
    pub subject: Subject,
    /// What it may cost to apply it.
    pub risk: Risk,
    /// The releases in which it may be proposed.
    pub releases: Range,
    /// Goals that it serves; none: all.
    pub goals: Vec<Goal>,
    /// Workloads that it serves; none: all.
    pub workloads: Vec<Workload>,
    /// Articles with a sentence that leads here.
    pub articles: Vec<String>,
    /// The condition.
    pub when: String,
    /// The reason, with facts in braces.
    pub reason: String,
    /// The effect that is to be seen.
    pub expect: String,
    /// The price, and harm.
    pub cost: String,
    /// The way for an operator to see it.
    pub verify: String,
    /// Grounds.
    pub evidence: Vec<Evidence>,
    /// Rules that are not to be proposed beside it.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// Values that it sets, or takes away.
    #[serde(default, rename = "set")]
    pub sets: Vec<Set>,
    /// Its standing in releases that were looked at, by major number.
    pub release: BTreeMap<String, Standing>,
    /// Options that it names.
    #[serde(default, rename = "option")]
    pub options: Vec<RuleOption>,
}

/// What becomes of a rule whose condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A value is set.
    Set,
    /// A value that older advice left is taken away.
    Remove,
    /// Advice that does harm: named where somebody followed it, and never proposed.
    Refuse,
    /// A fact is compared, and nothing is set.
    Check,
    /// A person acts.
    Advice,
}

/// The objects that a rule is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The cluster.
    Cluster,
    /// Each OSD.
    Osd,
    /// Each host.
    Host,
    /// Each disk of those hosts.
    Disk,
    /// Each network interface of those hosts.
    Nic,
    /// Each pool.
    Pool,
    /// Each image that was looked at.
    Image,
    /// Each client on those hosts.
    Client,
    /// Each cache on those hosts.
    Cache,
}

/// What applying a rule may cost, in the order in which a plan has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// Nothing is changed.
    None,
    /// It acts at once, and back.
    Online,
    /// Clients open their images anew.
    Reopen,
    /// OSDs are restarted one by one.
    Restart,
    /// OSDs are made anew.
    Redeploy,
    /// Hosts are restarted.
    Reboot,
    /// Durability, recovery or security is less afterwards.
    Weakens,
}

impl Risk {
    /// In a few words.
    pub fn words(self) -> &'static str {
        match self {
            Risk::None => "nothing is changed",
            Risk::Online => "acts at once",
            Risk::Reopen => "clients open their images anew",
            Risk::Restart => "OSDs are restarted one by one",
            Risk::Redeploy => "OSDs are made anew",
            Risk::Reboot => "hosts are restarted",
            Risk::Weakens => "availability, durability, recovery or security is less",
        }
    }
}

/// A range of major releases of Ceph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The first.
    pub from: i64,
    /// The last.
    pub to: i64,
}

impl Range {
    /// True if it has this release.
    pub fn has(&self, release: i64) -> bool {
        (self.from..=self.to).contains(&release)
    }
}

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Small I/O a second.
    Iops,
    /// The time of one I/O.
    Latency,
    /// Bytes a second.
    Throughput,
    /// The time of recovery.
    Recovery,
}

impl Goal {
    /// As rules have it.
    pub fn word(self) -> &'static str {
        match self {
            Goal::Iops => "iops",
            Goal::Latency => "latency",
            Goal::Throughput => "throughput",
            Goal::Recovery => "recovery",
        }
    }
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Small random I/O of images.
    RbdRandom,
    /// Streams of images.
    RbdSeq,
    /// Both.
    Mixed,
}

impl Workload {
    /// As rules have it.
    pub fn word(self) -> &'static str {
        match self {
            Workload::RbdRandom => "rbd-random",
            Workload::RbdSeq => "rbd-seq",
            Workload::Mixed => "mixed",
        }
    }
}

/// Grounds of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// What was found.
    pub text: String,
    /// By whom.
    pub source: String,
}

/// A value that a rule sets, or takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The kind of place.
    pub target: Target,
    /// The place, with facts in braces: a section of the configuration, a pool, a host.
    #[serde(default)]
    pub who: String,
    /// The name of the value there, with facts in braces.
    pub key: String,
    /// The value as an expression; none where it is taken away.
    #[serde(default)]
    pub value: Option<String>,
    /// The structure that shows the effect.
    pub observe: Observe,
}

/// A kind of place that values are set in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Ceph's configuration database.
    Config,
    /// A file of Ceph's configuration.
    File,
    /// A pool.
    Pool,
    /// The manager.
    Mgr,
    /// An image.
    Image,
    /// A cache.
    Cas,
    /// The kernel, by sysctl.
    Sysctl,
    /// The kernel, by a file below /sys.
    Sysfs,
    /// A network interface.
    Nic,
    /// The affinity of threads and interrupts.
    Affinity,
    /// A drop-in of systemd.
    Unit,
    /// The environment of a daemon.
    Env,
    /// A daemon that is to start anew: the option that it takes in then is the name.
    Daemon,
}

/// The structure that shows the effect of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observe {
    /// The value that the daemon says it runs with: for options that act live.
    Option,
    /// The reservers of recovery.
    Reservers,
    /// Shards of the operation queue and their threads.
    Shards,
    /// The daemon started after the value was set.
    Startup,
    /// Memory pools.
    Mempools,
    /// The manager of the caches' memory.
    Pricache,
    /// The options that RocksDB wrote to the log as it was opened.
    RocksdbLog,
    /// Threads of the process.
    Threads,
    /// The kernel's value.
    Sysctl,
    /// The file below /sys.
    Sysfs,
    /// The environment of the process.
    Environ,
    /// The processors of each thread.
    Affinity,
    /// The network interface.
    Nic,
    /// The pool.
    Pool,
    /// The manager.
    Mgr,
    /// The cache.
    Cas,
    /// The image.
    Image,
    /// Nothing shows it.
    None,
}

/// The standing of a rule in a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// What it is worth there.
    pub state: State,
    /// What there is to know.
    #[serde(default)]
    pub note: String,
}

/// What a rule is worth in a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As the rule says.
    Same,
    /// As the rule says, with another value or another way.
    Changed,
    /// The release does it by itself.
    Default,
    /// Taken, and without effect.
    Void,
    /// It does harm there.
    Refuse,
    /// There is no such option.
    Absent,
    /// To be looked at first.
    Check,
}

/// An option that a rule names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleOption {
    /// Its name.
    pub name: String,
    /// Its defaults, by release.
    pub defaults: Vec<DefaultValue>,
    /// When a change of it acts, by release.
    #[serde(default)]
    pub acts: BTreeMap<String, Acts>,
}

/// The default of an option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultValue {
    /// The first release.
    pub from: i64,
    /// The last.
    pub to: i64,
    /// The value; `absent`: the release knows no such option.
    pub value: String,
}

/// When a change of an option acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Acts {
    /// At once.
    Live,
    /// When the daemon starts anew.
    Restart,
    /// When an OSD is made.
    Mkfs,
    /// When a pool is made.
    Pool,
    /// When a client opens its image.
    Client,
    /// Never.
    Never,
    /// Not looked at.
    Unknown,
}
