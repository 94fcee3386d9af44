//! The phases that open the image to write it: it is watched from then on, and its lock is not asked for yet.

use super::checks;
use super::machine::{Machine, Phase, Progress, Undo};
use super::request::Destage;
use super::step::{Client, Step};
use crate::CephError;
use crate::cluster::WATCH;
use crate::error::refuse;
use loligo_block::keyed;
use loligo_block::keys::{DESTAGE, LEASE};
use std::time::Duration;

/// Seconds for which OSDs must remember a client: once a second it is asked whether the image is still ours.
const SHORTEST: u64 = 8;
/// The shortest lease: room for one question that is not answered, and for a connection that is made anew.
const LEAST: Duration = Duration::from_secs(4);

impl Machine {
    /// The looking client has ended.
    pub(super) fn looked(&mut self) -> Progress {
        // The own client finds them again.
        self.warnings.clear();
        self.by = Client::Own;
        Ok(self.ask(Phase::Connect, Step::Connect(Client::Own)))
    }

    pub(super) fn connected(&mut self, me: i64) -> Progress {
        self.undo.push(Undo::CloseClient);
        self.me = me;
        Ok(self.ask(Phase::Open, Step::OpenImage))
    }

    pub(super) fn opened(&mut self) -> Progress {
        self.undo.push(Undo::CloseImage);
        Ok(self.ask(Phase::Options, Step::ReadOptions(Client::Own)))
    }

    pub(super) fn options_read(&mut self, overridden: &[String]) -> Progress {
        checks::check_options(&self.wanted.spec, overridden)?;
        Ok(self.ask(Phase::Grouping, Step::ReadGrouping))
    }

    pub(super) fn grouping_read(&mut self, against: Vec<String>) -> Progress {
        let (spec, destage) = (&self.wanted.spec, self.wanted.destage);
        if destage == Destage::Grouped && !against.is_empty() {
            return refuse(keyed!(
                "{DESTAGE} grouped: image {spec} does not allow it: {}",
                against.join("; ")
            ));
        }
        self.why_librbd = match destage {
            Destage::Librbd => vec![keyed!("as {DESTAGE} says").to_string()],
            Destage::Auto | Destage::Grouped => against,
        };
        Ok(self.ask(Phase::Size, Step::ReadSize))
    }

    pub(super) fn size_read(&mut self, bytes: u64) -> Progress {
        if !bytes.is_multiple_of(loligo_block::SECTOR) {
            return refuse(format!(
                "image {} has {bytes} bytes, which is no multiple of 512: 'rbd resize' it first",
                self.wanted.spec
            ));
        }
        self.size = bytes;
        Ok(self.ask(Phase::Flags, Step::ReadFlags))
    }

    pub(super) fn flags_read(&mut self, warnings: Vec<String>) -> Progress {
        self.warnings.extend(warnings);
        Ok(self.ask(Phase::WatchTimeout, Step::ReadWatchTimeout))
    }

    pub(super) fn watch_timeout_read(&mut self, seconds: u64) -> Progress {
        self.lease = lease_within(self.wanted.lease, seconds)?;
        if self.lease < self.wanted.lease {
            self.warnings.push(format!(
                "the lease is {:.1} s: OSDs of this cluster forget a client after {seconds} s (osd_client_watch_timeout)",
                self.lease.as_secs_f64()
            ));
        }
        Ok(self.ask(Phase::Pools, Step::OpenPools))
    }

    pub(super) fn pools_opened(&mut self) -> Progress {
        // From here on others who come ask us for the lock, and are told no once we have it.
        Ok(self.ask(Phase::Version, Step::ReadHeader(Client::Own)))
    }

    pub(super) fn version_read(&mut self, version: u64) -> Progress {
        self.free_at = version;
        Ok(self.ask(Phase::Features, Step::ReadFeatures(Client::Own)))
    }
}

/// The lease where OSDs forget a client after `watch` seconds: two thirds of that at most. The client is heard once a second, so
/// that a host that is cut off answers nothing any more by the time its watch ends.
fn lease_within(request: Duration, watch: u64) -> Result<Duration, CephError> {
    if watch < SHORTEST {
        return refuse(format!(
            "OSDs of this cluster forget a client after {watch} s, too soon to be sure of an image: 'ceph config set osd \
             osd_client_watch_timeout {WATCH}' (a core needs {SHORTEST} s at least)"
        ));
    }
    if request < LEAST {
        return refuse(keyed!(
            "a lease of {} s is too short to be renewed in time: use {LEASE:#} {} or more",
            request.as_secs_f64(),
            LEAST.as_secs()
        ));
    }
    Ok(request.min(Duration::from_secs(2 * watch) / 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_before_the_watch_and_lasts_for_its_questions() {
        let lease = |request, watch| lease_within(Duration::from_secs(request), watch);
        assert_eq!(lease(60, 30), Ok(Duration::from_secs(20)));
        assert_eq!(lease(60, 90), Ok(Duration::from_secs(60)));
        assert_eq!(lease(4, 30), Ok(Duration::from_secs(4)));
        assert!(lease(3, 30).unwrap_err().to_string().contains("--lease 4"));
        assert!(keyed!("{}", lease(3, 30).unwrap_err()).for_file().contains("use rbd.lease = 4 or more"));
    }

    #[test]
    fn the_lease_is_shorter_where_osds_forget_sooner() {
        let lease = |watch| lease_within(Duration::from_secs(20), watch);
        assert_eq!(lease(30), Ok(Duration::from_secs(20)));
        assert_eq!(lease(600), Ok(Duration::from_secs(20)));
        assert_eq!(lease(12), Ok(Duration::from_secs(8)));
        assert!(lease(8).is_ok_and(|l| l >= LEAST));
        assert!(lease(7).unwrap_err().to_string().contains("osd_client_watch_timeout"));
    }
}
