//! The sockets by which clients come to a volume that is served: bound at its start, or when somebody says so.

use crate::options::ServeOptions;
use loligo_client::outcome::{Ended, Outcome};
use loligo_export::{Credentials, ExportSpec, Guard, ListenAddr, Listener, SocketSpec};
use loligo_shard::{Command, Handle};
use parking_lot::Mutex;
use std::time::Duration;

/// The time that a thread of the volume may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// One socket of the definition.
#[derive(Debug)]
struct Door {
    spec: SocketSpec,
    /// The socket as it is bound; the port is the real one.
    bound: Option<SocketSpec>,
}

/// Those of a volume.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    guard: Option<Guard>,
    /// Held while one changes: of two orders the second finds what the first has done.
    all: Mutex<Vec<Door>>,
}

impl Doors {
    /// Those that `o` names: all are bound but those that wait to be told.
    pub(crate) fn of(o: &ServeOptions) -> Doors {
        let sockets = o.listen.iter().filter_map(|spec| match spec {
            ExportSpec::Socket(spec) => Some(spec.clone()),
            ExportSpec::Fuse(_) | ExportSpec::Block(_) | ExportSpec::Ublk(_) | ExportSpec::Loop(_) => None,
        });
        let all = sockets.map(|spec| Door { bound: Some(spec.clone()).filter(|s| !s.when_told), spec });
        Doors { guard: Some(Credentials::guard(o.tls.as_ref())), all: Mutex::new(all.collect()) }
    }

    /// Binds those that are meant and are not bound; `listed` hears of each.
    pub(crate) fn bind(
        &self,
        which: Option<&str>,
        handle: &Handle,
        mut listed: impl FnMut(&SocketSpec),
    ) -> Result<(), Ended> {
        let mut all = self.all.lock();
        for door in meant(&mut all, which)? {
            if door.bound.is_some() {
                continue;
            }
            let listener =
                Listener::open(&door.spec, self.guard.unwrap_or(Guard::Cleartext)).map_err(|why| {
                    let mend = if why.is_not_yet() { ". Add the address to this host first" } else { "" };
                    Ended::refused(format!("{why}{mend}"))
                })?;
            let spec = listener.spec().clone();
            let said = vec![handle.send(0, Command::Listen(listener))];
            handle.wait_within(said, LIMIT).map_err(|why| failed(&why.to_string()))?;
            listed(&spec);
            door.bound = Some(spec);
        }
        Ok(())
    }

    /// Lets go of those that are meant and are bound; `gone` hears of each.
    pub(crate) fn unbind(
        &self,
        which: Option<&str>,
        handle: &Handle,
        mut gone: impl FnMut(&SocketSpec),
    ) -> Result<(), Ended> {
        let mut all = self.all.lock();
        for door in meant(&mut all, which)? {
            let Some(spec) = &door.bound else { continue };
            let addr: &ListenAddr = &spec.addr;
            // The first thread has the listener. One that it has given to another thread before is hung up on there.
            for thread in 0..handle.shards() {
                let said = vec![handle.send(thread, Command::Unlisten(addr.clone()))];
                handle.wait_within(said, LIMIT).map_err(|why| failed(&why.to_string()))?;
            }
            gone(spec);
            door.bound = None;
        }
        Ok(())
    }
}

/// The sockets that `which` names by their address; without a name those that wait to be told.
fn meant<'a>(all: &'a mut [Door], which: Option<&str>) -> Result<Vec<&'a mut Door>, Ended> {
    let known = all.iter().map(|d| d.spec.addr.to_string()).collect::<Vec<_>>().join(", ");
    let is_meant = |door: &&mut Door| match which {
        Some(name) => {
            let is = |spec: &SocketSpec| spec.to_string() == name || spec.addr.to_string() == name;
            is(&door.spec) || door.bound.as_ref().is_some_and(is)
        }
        None => door.spec.when_told,
    };
    let found: Vec<&mut Door> = all.iter_mut().filter(is_meant).collect();
    if found.is_empty() {
        return Err(Ended::refused(match which {
            Some(name) => format!("'{name}' is no socket of this volume's definition: it has {known}"),
            None => "no socket of this volume waits to be told: give it one as tcp:ADDR:PORT?when-told, or name one".to_owned(),
        }));
    }
    Ok(found)
}

fn failed(why: &str) -> Ended {
    Ended::with(Outcome::Failed, why.to_owned())
}
