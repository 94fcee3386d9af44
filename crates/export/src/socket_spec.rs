//! A listening socket as a user names it: `unix:PATH?owner=USER:GROUP&mode=0660&read-only`.

use crate::blockdev::Owner;
use crate::listen::{ListenAddr, ListenError};
use crate::tls::Guard;
use std::fmt;
use std::str::FromStr;

/// Bits that the mode of a socket's file may have.
const MODES: u32 = 0o777;

/// The address that clients connect to, who may, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketSpec {
    /// Its place.
    pub addr: ListenAddr,
    /// To whom the file of a unix socket belongs; `None`: to the user that the service runs as.
    pub owner: Option<Owner>,
    /// Its permission bits; `None`: 0600.
    pub mode: Option<u32>,
    /// Its clients may not change anything.
    pub read_only: bool,
    /// It is not bound at the start of its volume, but when somebody says so: its address comes later, and goes earlier.
    pub when_told: bool,
    /// Without TLS it is served beyond loopback all the same: its network is the user's alone.
    pub cleartext: bool,
}

impl SocketSpec {
    /// Checks that it may be served behind `guard`.
    ///
    /// # Errors
    /// As [`ListenAddr::check`], unless it was said that nothing needs to be between.
    pub fn check(&self, guard: Guard) -> Result<(), ListenError> {
        if self.cleartext && guard == Guard::Cleartext {
            return Ok(());
        }
        self.addr.check(guard)
    }
}

impl From<ListenAddr> for SocketSpec {
    fn from(addr: ListenAddr) -> SocketSpec {
        SocketSpec { addr, owner: None, mode: None, read_only: false, when_told: false, cleartext: false }
    }
}

impl FromStr for SocketSpec {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<SocketSpec, ListenError> {
        let (addr, options) = text.split_once('?').unwrap_or((text, ""));
        let mut spec = SocketSpec::from(addr.parse::<ListenAddr>()?);
        let bad = |why: String| ListenError::Address { given: text.to_owned(), why };
        for option in options.split('&').filter(|o| !o.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("owner", owner) => spec.owner = Some(owner.parse().map_err(bad)?),
                ("mode", mode) => {
                    let bits = u32::from_str_radix(mode, 8).ok().filter(|bits| bits & !MODES == 0);
                    let why = || bad(format!("mode={mode} is none: give octal digits, as mode=0660"));
                    spec.mode = Some(bits.ok_or_else(why)?);
                }
                ("read-only", "") => spec.read_only = true,
                ("when-told", "") => spec.when_told = true,
                ("cleartext", "") => spec.cleartext = true,
                _ => {
                    let why = format!(
                        "'{option}' is no option of a socket: owner=USER[:GROUP], mode=0660, read-only, when-told and cleartext are"
                    );
                    return Err(bad(why));
                }
            }
        }
        if matches!(spec.addr, ListenAddr::Tcp(_)) && (spec.owner.is_some() || spec.mode.is_some()) {
            return Err(bad("owner and mode are for the file of a unix: socket".to_owned()));
        }
        if matches!(spec.addr, ListenAddr::Unix(_)) && spec.cleartext {
            return Err(bad("cleartext is for a tcp: socket".to_owned()));
        }
        Ok(spec)
    }
}

impl fmt::Display for SocketSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.map(|o| format!("owner={}:{}", o.uid, o.gid));
        let mode = self.mode.map(|m| format!("mode={m:04o}"));
        let read_only = self.read_only.then(|| "read-only".to_owned());
        let when_told = self.when_told.then(|| "when-told".to_owned());
        let cleartext = self.cleartext.then(|| "cleartext".to_owned());
        let options: Vec<String> =
            [owner, mode, read_only, when_told, cleartext].into_iter().flatten().collect();
        let mark = if options.is_empty() { "" } else { "?" };
        write!(f, "{}{mark}{}", self.addr, options.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_socket_are_read_and_shown_alike() {
        let text = "unix:/run/v.sock?owner=107:36&mode=0660&read-only&when-told";
        let spec: SocketSpec = text.parse().unwrap();
        assert_eq!(spec.addr, ListenAddr::Unix("/run/v.sock".into()));
        assert_eq!((spec.owner, spec.mode), (Some(Owner { uid: 107, gid: 36 }), Some(0o660)));
        assert!(spec.read_only && spec.when_told);
        assert_eq!(spec.to_string(), text);
        assert_eq!(spec.to_string().parse::<SocketSpec>().unwrap(), spec);
        let plain: SocketSpec = "tcp:127.0.0.1:10809?read-only".parse().unwrap();
        let bare: SocketSpec = "tcp:192.0.2.1:10809?cleartext".parse().unwrap();
        assert!(bare.check(Guard::Cleartext).is_ok() && bare.addr.check(Guard::Cleartext).is_err());
        assert!(bare.check(Guard::Encrypted).is_err(), "TLS that asks nobody is not what was meant");
        assert_eq!(bare.to_string(), "tcp:192.0.2.1:10809?cleartext");
        assert!(plain.read_only && !plain.when_told && plain.to_string().ends_with("10809?read-only"));
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for (bad, said) in [
            ("unix:/s?mode=888", "octal"),
            ("unix:/s?mode=7777", "octal"),
            ("unix:/s?owner=nobody-of-that-name", "/etc/passwd"),
            ("unix:/s?readonly", "read-only"),
            ("unix:/s?read-only=no", "no option"),
            ("unix:/s?cleartext", "tcp: socket"),
            ("tcp:127.0.0.1:1?mode=0660", "unix: socket"),
        ] {
            let why = bad.parse::<SocketSpec>().unwrap_err().to_string();
            assert!(why.contains(said), "{bad}: {why}");
        }
    }
}
