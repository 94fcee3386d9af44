//! A run of the agent: one loop that feeds the machine, with a thread for each link and for each question.

use crate::config::PairConfig;
use crate::executor::{Executor, Word};
use crate::handle::Handle;
use crate::history::History;
use crate::keeper::Keeper;
use crate::luns::Luns;
use crate::status;
use crate::whole_file;
use crate::wire::{BEAT, Stranger, Wire};
use anyhow::{Context, Result, bail, ensure};
use loligo_lab::interrupt::Interrupt;
use loligo_pair::machine::{Action, Answer, Ask, Deed, Event, Failure, Job, Machine, Notice};
use loligo_pair::plan::{Millis, Side};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Between two ticks.
const TICK: Duration = Duration::from_millis(25);

/// Runs the agent of `me` until `stop` is set or its handle says so; what runs on this side goes on then. `ready` is called with the
/// handle once the socket is served.
///
/// # Errors
/// If the pair's file makes no sense, or an address or socket cannot be had.
pub fn run(config: PairConfig, me: Side, stop: &Interrupt, ready: impl FnOnce(Handle)) -> Result<()> {
    let config = Arc::new(config);
    let own = &config.controller[&me];
    std::fs::create_dir_all(&own.run).with_context(|| format!("{} cannot be made", own.run.display()))?;
    let _alone = lock(&own.run)?;
    let plan = config.plan(me)?;
    let luns = Luns::new(config.clone(), me)?;
    check_partner(&luns)?;
    let (words, inbox) = channel();
    let wire = Wire::new(&config.secret()?);
    let links = links(&config, me, &wire, &words)?;
    let history = History::open(&own.run)?;
    let keeper = Keeper::new(&config, me)?;
    let handle = Handle::new(words.clone(), history.clone());
    let _socket = crate::control::serve(&config.socket(me), handle.clone(), keeper)?;
    let executor = Executor::start(config.clone(), me, words)?;
    let start = Instant::now();
    let clock = || start.elapsed().as_millis() as Millis;
    let mut machine = Machine::new(plan, clock(), next_run(&own.run, luns.own_run())?);
    let mut limits: BTreeMap<Job, Instant> = BTreeMap::new();
    ready(handle);
    while stop.check().is_ok() {
        executor.beat();
        let mut order = None;
        let event = match inbox.recv_timeout(TICK) {
            Ok(Word::Event(event)) => event,
            Ok(Word::Order(wanted, back)) => {
                order = Some(back);
                Event::Wanted(wanted)
            }
            Ok(Word::Status(back)) => {
                let _ = back.send(status::of(&config.pair, &machine));
                continue;
            }
            Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => Event::Tick,
        };
        if let Event::Answered(job, _) = &event {
            // One that is over its limit was answered already, and the machine forgets what comes late.
            limits.remove(job);
        }
        let mut actions = machine.handle(clock(), event);
        let now = Instant::now();
        let late: Vec<Job> = limits.iter().filter(|(_, limit)| **limit <= now).map(|(job, _)| *job).collect();
        for job in late {
            limits.remove(&job);
            actions.extend(machine.handle(clock(), Event::Answered(job, Answer::Failed(Failure::TimedOut))));
        }
        for action in actions {
            match action {
                Action::Send(beat) => links.send(&wire.encode(&beat)),
                Action::Ask(job, ask) => {
                    limits.insert(job, Instant::now() + limit(&ask));
                    executor.ask(job, ask);
                }
                Action::Tell(notice) => tell(&history, notice),
                Action::Refuse(why) => {
                    if let Some(back) = order.take() {
                        // Whoever asked may have gone.
                        let _ = back.send(Err(why));
                    }
                }
            }
        }
        if let Some(back) = order {
            let _ = back.send(Ok(()));
        }
    }
    Ok(())
}

/// Refuses a living partner that would be taken for dead, since nothing that it says is understood.
fn check_partner(luns: &Luns) -> Result<()> {
    match luns.stranger() {
        None => Ok(()),
        Some(Stranger::Version(version)) => bail!(
            "the partner's agent runs, and its heartbeats have version {version}, which this program does not know: run the same \
             version on both controllers"
        ),
        Some(Stranger::Secret) => bail!(
            "the partner's agent runs, and its heartbeats are signed with another secret: give both controllers the same file, and see \
             that 'quorum' is this pair's LUN"
        ),
    }
}

fn tell(history: &History, notice: Notice) {
    match &notice {
        Notice::Role { from, to, why } => tracing::warn!(%from, %to, why, "the role changes"),
        Notice::Alarm(text) => tracing::error!("{text}"),
        Notice::Step(text) => tracing::info!("{text}"),
    }
    history.add(notice);
}

/// The time after which a question counts as not answered.
fn limit(ask: &Ask) -> Duration {
    Duration::from_millis(match ask {
        Ask::WriteSector(_) | Ask::ReadSector | Ask::ReadKeys(_) => 3000,
        Ask::Monitors => 4000,
        Ask::Speaks(_) => 1000,
        // An array waits for the victim's writes.
        Ask::Race(_) | Ask::Take(_) => 30_000,
        Ask::Hold(_) | Ask::Join(..) | Ask::Leave(_) | Ask::Open(_) => 10_000,
        Ask::PowerOff | Ask::Kill(_) | Ask::Stop(_) => 60_000,
        Ask::Owned(_, Deed::Start(_)) => 120_000,
        Ask::Owned(..) => 10_000,
    })
}

/// The links to the partner.
#[derive(Debug)]
struct Links {
    ends: Vec<(UdpSocket, std::net::SocketAddr)>,
    /// The threads that hear the partner end with it, and let go of the addresses: a partner that is dead wakes none of them.
    alive: Arc<()>,
}

/// Between two looks of such a thread.
const HEARD: Duration = Duration::from_secs(1);

impl Links {
    fn send(&self, bytes: &[u8; BEAT]) {
        for (socket, to) in &self.ends {
            // A link that is down shows by the partner's silence. One whose queue stands still must not hold the other one, and the
            // array, up.
            let _ = rustix::net::sendto(socket, bytes, rustix::net::SendFlags::DONTWAIT, to);
        }
    }
}

/// Opens this side's end of each link, with a thread that hears the partner.
fn links(config: &PairConfig, me: Side, wire: &Wire, words: &Sender<Word>) -> Result<Links> {
    let (own, partner) = (&config.controller[&me], &config.controller[&me.other()]);
    let mut links = Links { ends: Vec::new(), alive: Arc::default() };
    for (number, (mine, theirs)) in own.links.iter().zip(&partner.links).enumerate() {
        let socket = UdpSocket::bind(mine).with_context(|| {
            format!("{mine} cannot be had for heartbeats: see that it is an address of this host")
        })?;
        socket.set_read_timeout(Some(HEARD))?;
        let (hears, wire, words) = (socket.try_clone()?, wire.clone(), words.clone());
        let alive = Arc::downgrade(&links.alive);
        let hear = move || {
            let mut bytes = [0; 2 * BEAT];
            while alive.strong_count() > 0 {
                // Errors of a datagram sent earlier come here too.
                let Ok(len) = hears.recv(&mut bytes) else { continue };
                let Some(beat) = wire.decode(&bytes[..len]) else { continue };
                if words.send(Word::Event(Event::Heard(number, beat))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(format!("link {number}")).spawn(hear)?;
        links.ends.push((socket, *theirs));
    }
    Ok(links)
}

/// Keeps a second agent away from the folder, for as long as it lives.
pub(crate) fn lock(run: &Path) -> Result<std::fs::File> {
    let path = run.join("pair.lock");
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path)?;
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    ensure!(locked.is_ok(), "an agent runs with {} already: 'loligo pair status' shows it", run.display());
    Ok(file)
}

/// A number greater than that of any run before: the time, unless the clock went back. The partner heeds no lesser one; `on_lun` is
/// what the quorum LUN has, which outlives the folder.
fn next_run(folder: &Path, on_lun: Option<u64>) -> Result<u64> {
    let path = folder.join("pair.run");
    let last: u64 =
        std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64);
    let next = now.max(last + 1).max(on_lun.map_or(0, |run| run.saturating_add(1)));
    whole_file::write(&path, next.to_string().as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_later_than_the_one_on_the_quorum_lun() {
        let folder = tempfile::tempdir().unwrap();
        let first = next_run(folder.path(), None).unwrap();
        assert!(next_run(folder.path(), None).unwrap() > first);
        // The folder is that of a new system, and the clock is behind.
        let lost = tempfile::tempdir().unwrap();
        let ahead = first + 1_000_000_000;
        assert_eq!(next_run(lost.path(), Some(ahead)).unwrap(), ahead + 1);
    }

    fn config(dir: &Path) -> PairConfig {
        let free = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let controller = |side: &str, key: &str| {
            format!(
                "[controller.{side}]\nhost = \"{side}\"\nkey = \"{key}\"\nlinks = [\"{}\"]\nquorum = \"{at}/quorum\"\n\
                 run = \"{at}/{side}\"\n",
                free(),
                at = dir.display()
            )
        };
        let ceph = "[ceph]\nconf = \"/nowhere\"\nname = \"client.admin\"\n";
        let secret = "00".repeat(32);
        let text = format!(
            "pair = \"n\"\nsecret = \"{secret}\"\n{ceph}{}{}",
            controller("a", "0xa"),
            controller("b", "0xb")
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_run_that_failed_keeps_no_link_from_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let again = || run(config.clone(), Side::A, &Interrupt::default(), |handle| handle.end());
        let socket = config.socket(Side::A);
        std::fs::create_dir_all(socket.join("in the way")).unwrap();
        let why = format!("{:#}", again().unwrap_err());
        assert!(why.contains("the socket"), "{why}");
        std::fs::remove_dir_all(&socket).unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while let Err(why) = again() {
            assert!(Instant::now() < end, "{why:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
