//! The sources of facts, and the purpose of a plan, as arguments.

use crate::outcome::refuse;
use anyhow::{Context, Result};
use clap::ValueEnum;
use loligo_ceph::commands::{CAPS_TO_LOOK, CommandClient};
use loligo_client::outcome::Ended;
use loligo_osd::cluster::Access;
use loligo_tune::facts::{Facts, Unseen, VERSION};
use loligo_tune::gather::remote::Remote;
use loligo_tune::gather::{self, HostReport};
use loligo_tune::measure::take_over;
use loligo_tune::plan::Purpose;
use loligo_tune::rules::{Goal, Risk, Rules, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Addresses of OSDs that packets are sent to at most, for the MTU on the way.
const PROBED: usize = 32;

/// The sources of facts.
#[derive(Debug, clap::Args)]
pub(super) struct From {
    /// The cluster's configuration [default: $CEPH_CONF or /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    pub(super) conf: Option<PathBuf>,
    /// The client to ask as
    #[arg(long, value_name = "CLIENT", default_value = "client.admin")]
    pub(super) name: String,
    /// The file of that client's key, if not the one that the configuration names
    #[arg(long, value_name = "FILE")]
    pub(super) keyring: Option<PathBuf>,
    /// Ask no cluster: this host and each --host alone
    #[arg(long)]
    pub(super) no_cluster: bool,
    /// Ask this host, too, over ssh as DESTINATION (any number)
    #[arg(long = "host", value_name = "DESTINATION")]
    pub(super) hosts: Vec<String>,
    /// This program on those hosts
    #[arg(long, value_name = "PROGRAM", default_value = "loligo")]
    pub(super) remote_program: String,
    /// An option of ssh, as for its -o (any number)
    #[arg(long, value_name = "OPTION=VALUE")]
    pub(super) ssh_option: Vec<String>,
    /// The folder of this host's files: a recorded tree of another machine with its proc and sys
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub(super) root: PathBuf,
    /// Take figures of disks and OSDs from here, as 'loligo tune facts --measure --json' wrote them
    #[arg(long, value_name = "FILE")]
    pub(super) measured: Option<PathBuf>,
}

/// What a plan is for.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct PurposeArgs {
    /// The work of the clients
    #[arg(long, value_enum, default_value = "rbd-random")]
    pub(super) workload: WorkloadArg,
    /// The aim
    #[arg(long, value_enum, default_value = "iops")]
    pub(super) goal: GoalArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum WorkloadArg {
    /// Small random I/O of images
    RbdRandom,
    /// Streams of images
    RbdSeq,
    /// Both
    Mixed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum GoalArg {
    /// Small I/O a second
    Iops,
    /// The time of one I/O
    Latency,
    /// Bytes a second
    Throughput,
    /// The time of recovery
    Recovery,
}

impl From {
    pub(super) fn conf(&self) -> PathBuf {
        self.conf.clone().unwrap_or_else(Access::default_conf)
    }
}

impl PurposeArgs {
    pub(super) fn purpose(self) -> Purpose {
        let workload = match self.workload {
            WorkloadArg::RbdRandom => Workload::RbdRandom,
            WorkloadArg::RbdSeq => Workload::RbdSeq,
            WorkloadArg::Mixed => Workload::Mixed,
        };
        let goal = match self.goal {
            GoalArg::Iops => Goal::Iops,
            GoalArg::Latency => Goal::Latency,
            GoalArg::Throughput => Goal::Throughput,
            GoalArg::Recovery => Goal::Recovery,
        };
        Purpose { workload, goal }
    }
}

pub(super) fn this_host(from: &From, probes: &[IpAddr]) -> HostReport {
    let root = &from.root;
    let name = gather::host_name(root).unwrap_or_else(|| "localhost".to_owned());
    gather::look(root, &name, &from.conf(), probes)
}

/// The cluster as a client that asks and tells.
pub(super) fn connect(from: &From) -> Result<CommandClient> {
    let conf = from.conf();
    let client = CommandClient::connect(&conf, &from.name, from.keyring.as_deref()).map_err(|why| {
        let said = why.to_string();
        // The words for a core name an option of it.
        let said = said.split("; name it with '?id=").next().unwrap_or_default();
        let client = format!("client.{}", from.name.trim_start_matches("client."));
        let key = if said.starts_with("no key was found") && client != "client.admin" {
            format!(" \"ceph auth get-or-create {client} {CAPS_TO_LOOK} -o FILE\" makes a key for --keyring FILE.")
        } else {
            String::new()
        };
        let said = said.trim_end_matches(['.', '?']);
        Ended::refused(format!(
            "the cluster of {} cannot be asked: {said}.{key} Check --conf, --name and --keyring, or give --no-cluster for hosts alone",
            conf.display()
        ))
    })?;
    Ok(client)
}

/// Asks everybody that is to be asked.
pub(super) fn gather(from: &From, rules: &Rules) -> Result<Facts> {
    let client = if from.no_cluster { None } else { Some(connect(from)?) };
    Ok(gather_from(from, client.as_ref(), rules)?.0)
}

/// The facts, and the hosts that answered over ssh, by the names that OSDs have for them.
pub(super) fn gather_from(
    from: &From,
    client: Option<&CommandClient>,
    rules: &Rules,
) -> Result<(Facts, BTreeMap<String, Remote>)> {
    let measured =
        from.measured.as_ref().map(|path| Ok::<_, anyhow::Error>((path, read(path)?))).transpose()?;
    let names: BTreeSet<String> =
        rules.iter().flat_map(|it| it.rule.options.iter().map(|option| option.name.clone())).collect();
    let mut facts = client.map_or_else(Facts::default, |client| gather::cluster(client, &names));
    facts.version = VERSION;
    facts.taken = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let up = facts.osds.iter().filter(|osd| osd.up);
    let probes: BTreeSet<IpAddr> = up.flat_map(|osd| [osd.front, osd.back]).flatten().collect();
    let probes: Vec<IpAddr> = probes.into_iter().take(PROBED).collect();
    let mut reports = vec![this_host(from, &probes)];
    let mut remotes = BTreeMap::new();
    for destination in &from.hosts {
        let remote = Remote {
            destination: destination.clone(),
            program: from.remote_program.clone(),
            options: from.ssh_option.clone(),
        };
        match remote.ask(&probes) {
            Ok(report) => {
                // Orders for one of them would go to the other.
                if reports.iter().any(|it| it.host.name == report.host.name) {
                    return Err(Ended::refused(format!(
                        "--host {destination} calls itself '{}', as one that is asked already does: leave it out, or give each \
                         host its own name",
                        report.host.name
                    ))
                    .into());
                }
                remotes.insert(report.host.name.clone(), remote);
                reports.push(report);
            }
            Err(why) => facts.unseen.push(Unseen { what: format!("host {destination}"), why }),
        }
    }
    gather::join(&mut facts, reports);
    if let Some((path, measured)) = measured {
        let fail = |why| Ended::refused(format!("{}: {why}", path.display()));
        take_over(&mut facts, &measured).map_err(fail)?;
    }
    Ok((facts, remotes))
}

/// Facts that were gathered before.
pub(super) fn read(path: &Path) -> Result<Facts> {
    let text = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Facts::read(&text).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum RiskArg {
    /// Changes that act at once
    Online,
    /// And those for which clients open their images anew
    Reopen,
    /// And those for which OSDs are restarted one by one
    Restart,
}

impl RiskArg {
    pub(super) fn risk(self) -> Risk {
        match self {
            RiskArg::Online => Risk::Online,
            RiskArg::Reopen => Risk::Reopen,
            RiskArg::Restart => Risk::Restart,
        }
    }

    /// Refuses an option that acts only at a greater price. Clients of a comparison open their image for each run.
    pub(super) fn affords(self, key: &str, risk: Risk) -> Result<()> {
        if risk <= self.risk().max(Risk::Reopen) {
            return Ok(());
        }
        refuse(format!(
            "OSDs read {key} as they start: give --risk restart, and they are restarted one by one"
        ))
    }
}
