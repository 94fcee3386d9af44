//! `loligo tune threads`: a daemon that started anew gets the processors that were applied.

use crate::outcome::{Json, refuse};
use crate::values;
use anyhow::{Result, bail};
use loligo_client::outcome::{Ended, Outcome};
use loligo_log::{one_line, out};
use loligo_tune::apply::{Again, bind_again};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time between two looks.
const BETWEEN: Duration = Duration::from_secs(1);

/// Set the processors of a daemon's threads again, as they were applied
///
/// A daemon that starts anew has the processors of its parent, and an OSD may bind itself as it comes up. This sets what 'loligo tune
/// apply' has kept in /etc/loligo/tune-threads.conf, for the daemon and for interrupts of the host. It looks again until all has stayed
/// so for a while. loligo-tune-threads@.service runs it after each start, where rule CPU-17 or CPU-19 is applied.
#[derive(Debug, clap::Args)]
pub(super) struct ThreadsArgs {
    /// The number of an OSD, or 'loligod'
    #[arg(value_name = "DAEMON")]
    daemon: String,
    /// Wait this long for the daemon to run
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = values::seconds)]
    wait: Duration,
    /// Look again until all has stayed so for this long
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = values::seconds)]
    settle: Duration,
    /// The folder of this host's files
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    json: Json,
}

/// Runs it.
pub(super) fn threads(a: &ThreadsArgs) -> Result<()> {
    let daemon = match a.daemon.as_str() {
        "loligod" => "loligod".to_owned(),
        id if id.bytes().all(|byte| byte.is_ascii_digit()) && !id.is_empty() => format!("osd.{id}"),
        other => {
            bail!(Ended::with(Outcome::Usage, format!("'{other}' is no OSD: give its number, or 'loligod'")))
        }
    };
    let (begun, mut since) = (Instant::now(), Instant::now());
    let all = loop {
        let all = bind_again(&a.root, &daemon);
        let of_daemon = || all.iter().filter(|it| it.place.starts_with(&format!("{daemon}/")));
        if of_daemon().next().is_none() {
            return refuse(format!(
                "no processors are kept for {daemon}: 'loligo tune apply --rule CPU-05' or CPU-16 sets them"
            ));
        }
        let is_done = of_daemon().all(|it| it.count > 0 && it.why.is_none());
        if all.iter().any(|it| it.changed) || !is_done {
            since = Instant::now();
        }
        let is_over = if is_done { since.elapsed() >= a.settle } else { begun.elapsed() >= a.wait };
        if is_over {
            break all;
        }
        std::thread::sleep(BETWEEN);
    };
    if let Some(it) = all.iter().find(|it| it.why.is_some()) {
        bail!("{}: {}", it.place, it.why.as_deref().unwrap_or_default());
    }
    if let Some(it) = all.iter().find(|it| it.count == 0) {
        bail!("{}: nothing of it runs here after {} s (--wait)", it.place, a.wait.as_secs());
    }
    a.json.done(json!({"places": all}), || all.iter().for_each(|it| out!("{}", line(it))))
}

fn line(it: &Again) -> String {
    format!("{}: {} have {}\n", it.place, it.count, one_line(&it.value))
}
