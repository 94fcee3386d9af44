//! The monitors as the agent asks and tells them.

use crate::config::CephConfig;
use loligo_ceph::monitors::Monitors as Client;
use loligo_pair::machine::{Answer, Failure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// The time that a process of an OSD has to say its banner.
const BANNER: Duration = Duration::from_millis(300);

/// The monitors of a cluster. It connects in the background, as long as it takes.
#[derive(Debug, Clone)]
pub struct Monitors {
    client: Arc<Mutex<Option<Arc<Client>>>>,
    /// Addresses of OSDs as they were last told.
    addresses: Arc<Mutex<Vec<(u32, SocketAddr)>>>,
}

impl Monitors {
    /// Begins to connect.
    pub fn start(config: CephConfig) -> Monitors {
        let monitors = Monitors { client: Arc::default(), addresses: Arc::default() };
        let slot = monitors.client.clone();
        let connect = move || loop {
            match Client::connect(&config.conf, &config.name, config.keyring.as_deref()) {
                Ok(client) => return *slot.lock() = Some(Arc::new(client)),
                Err(why) => tracing::warn!(error = %why, "no monitor lets the agent in: tried again"),
            }
            std::thread::sleep(AGAIN);
        };
        // Without the thread no monitor answers, which the agent sees.
        let _ = std::thread::Builder::new().name("monitors".to_owned()).spawn(connect);
        monitors
    }

    fn command(&self, command: &Value) -> Result<String, Failure> {
        let client = self.client.lock().clone();
        let client =
            client.ok_or_else(|| Failure::Other("no monitor has let the agent in yet".to_owned()))?;
        client.ask(&command.to_string()).map_err(|why| match why.errno() {
            Some(libc::ETIMEDOUT) => Failure::TimedOut,
            _ => Failure::Other(why.to_string()),
        })
    }

    /// Asks for what only a majority answers: the map of OSDs, whose addresses are noted.
    pub fn ask(&self) -> Answer {
        match self.command(&json!({"prefix": "osd dump", "format": "json"})) {
            Ok(text) => {
                if let Ok(map) = serde_json::from_str::<Value>(&text) {
                    self.note_addresses(&map);
                }
                Answer::Done
            }
            Err(why) => Answer::Failed(why),
        }
    }

    fn note_addresses(&self, map: &Value) {
        let osds = map["osds"].as_array().into_iter().flatten();
        let address = |osd: &Value| {
            let id = osd["osd"].as_u64()? as u32;
            let all = osd["public_addrs"]["addrvec"].as_array()?;
            let v2 = all.iter().find(|a| a["type"] == "v2").or_else(|| all.first())?;
            Some((id, v2["addr"].as_str()?.parse().ok()?))
        };
        *self.addresses.lock() = osds.filter_map(address).collect();
    }

    /// True if the process of OSD `id` says its banner at the address that the map has.
    pub fn speaks(&self, id: u32) -> bool {
        let address = self.addresses.lock().iter().find(|(osd, _)| *osd == id).map(|(_, address)| *address);
        address.is_some_and(|address| says_banner(address, BANNER))
    }

    /// Says that an OSD is down.
    pub fn down(&self, id: u32, dead: bool) -> Result<(), Failure> {
        let mut command = json!({"prefix": "osd down", "ids": [id.to_string()]});
        if dead {
            command["definitely_dead"] = Value::Bool(true);
        }
        self.command(&command).map(drop)
    }

    /// Says that the data of an OSD is lost to the cluster.
    pub fn out(&self, id: u32) -> Result<(), Failure> {
        self.command(&json!({"prefix": "osd out", "ids": [id.to_string()]})).map(drop)
    }

    /// Says that the data of an OSD is there again.
    ///
    /// # Errors
    /// If no majority answers, or the monitors refuse.
    pub fn put_in(&self, id: u32) -> Result<(), Failure> {
        self.command(&json!({"prefix": "osd in", "ids": [id.to_string()]})).map(drop)
    }

    /// Has the placement groups of an OSD scrubbed.
    pub fn scrub(&self, id: u32) -> Result<(), Failure> {
        self.command(&json!({"prefix": "osd scrub", "who": id.to_string()})).map(drop)
    }
}

/// True if whoever listens at `address` says the banner of Ceph's messenger within `limit`: `ceph v2`, or `ceph v027` of the first
/// protocol.
pub fn says_banner(address: SocketAddr, limit: Duration) -> bool {
    let said: Option<[u8; 7]> = first_words(address, limit);
    said.is_some_and(|said| &said == b"ceph v2" || said.starts_with(b"ceph v0"))
}

/// True if an NBD server greets at one of `addresses`. They are asked side by side: those that say nothing must not cost the others
/// the time that the question has.
pub fn greets_any(addresses: &[SocketAddr]) -> bool {
    std::thread::scope(|scope| {
        let ask = |address: &SocketAddr| {
            let address = *address;
            std::thread::Builder::new().name("ask".to_owned()).spawn_scoped(scope, move || greets(address))
        };
        let asked: Vec<_> = addresses.iter().map(ask).collect();
        asked.into_iter().flatten().any(|it| it.join().unwrap_or_default())
    })
}

fn greets(address: SocketAddr) -> bool {
    first_words(address, BANNER).is_some_and(|said: [u8; 8]| &said == b"NBDMAGIC")
}

/// The first bytes that are said at `address` to one who connects.
fn first_words<const N: usize>(address: SocketAddr, limit: Duration) -> Option<[u8; N]> {
    use std::io::Read;
    let mut stream = std::net::TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let mut said = [0; N];
    stream.read_exact(&mut said).ok()?;
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Instant;

    #[test]
    fn silent_sockets_cost_the_one_that_greets_no_time() {
        let silent: Vec<_> = (0..5).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let greeting = TcpListener::bind("127.0.0.1:0").unwrap();
        let all: Vec<_> =
            silent.iter().chain([&greeting]).map(|listener| listener.local_addr().unwrap()).collect();
        assert!(!greets_any(&all[..5]));
        std::thread::spawn(move || {
            let _ = greeting.accept().unwrap().0.write_all(b"NBDMAGIC");
        });
        let begun = Instant::now();
        assert!(greets_any(&all));
        assert!(begun.elapsed() < 3 * BANNER, "{:?}", begun.elapsed());
    }
}
