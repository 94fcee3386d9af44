//! Commands in JSON to monitors, to the manager and to OSDs, as `ceph` and `ceph tell` send them.

use crate::CephError;
use crate::advisory_lock::AdvisoryLock;
use crate::cluster::{Cluster, Purpose, text};
use crate::spec::ImageSpec;
use crate::survey::{self, SurveyedImage};
use serde_json::Value;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// The daemon that a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// A majority of the monitors.
    Monitors,
    /// The manager that is active.
    Manager,
    /// The OSD of this number.
    Osd(u32),
}

impl std::fmt::Display for Recipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recipient::Monitors => f.write_str("the monitors"),
            Recipient::Manager => f.write_str("the manager"),
            Recipient::Osd(id) => write!(f, "osd.{id}"),
        }
    }
}

/// Caps of a client that looks, as `ceph auth` takes them. An OSD answers most commands to `allow *` alone.
pub const CAPS_TO_LOOK: &str = "mon 'allow r' mgr 'allow r' osd 'allow *'";
/// Caps of a client that changes options, too.
pub const CAPS_TO_CHANGE: &str = "mon 'allow rw, allow service config-key rw' mgr 'allow rw' osd 'allow *'";

/// A client that asks and tells daemons, and has no image.
#[derive(Debug, Clone)]
pub struct CommandClient {
    cluster: Arc<Cluster>,
    /// `client.admin`.
    name: String,
}

impl CommandClient {
    /// Connects by the configuration `conf` as `name` (`client.admin`). It gives up after 15 s where nobody answers.
    ///
    /// # Errors
    /// If Ceph's libraries are missing, the configuration cannot be read, or no monitor lets the client in.
    pub fn connect(conf: &Path, name: &str, keyring: Option<&Path>) -> Result<CommandClient, CephError> {
        CommandClient::of(conf, name, keyring, Purpose::Look)
    }

    /// The same, with three minutes for the answer of an OSD: it may be asked to measure itself.
    ///
    /// # Errors
    /// As those of [`CommandClient::connect`].
    pub fn connect_to_measure(
        conf: &Path,
        name: &str,
        keyring: Option<&Path>,
    ) -> Result<CommandClient, CephError> {
        CommandClient::of(conf, name, keyring, Purpose::Measure)
    }

    fn of(
        conf: &Path,
        name: &str,
        keyring: Option<&Path>,
        purpose: Purpose,
    ) -> Result<CommandClient, CephError> {
        let spec = ImageSpec::of_none(conf, name, keyring);
        let name = format!("client.{}", name.trim_start_matches("client."));
        Ok(CommandClient { cluster: Arc::new(Cluster::connect(&spec, purpose)?), name })
    }

    /// Sends a command, and gives the answer's text. Any thread may, and several at once.
    ///
    /// # Errors
    /// If nobody answers within 15 s, or the daemon refuses; the error has its words. One for want of caps names them.
    pub fn send(&self, to: Recipient, command: &Value) -> Result<String, CephError> {
        self.cluster.command(to, &command.to_string()).map_err(|why| with_caps(why, &self.name))
    }

    /// Looks at the first `limit` images of a pool; the number of all is beside them.
    ///
    /// # Errors
    /// If there is no such pool, or the client may not read it.
    pub fn images(&self, pool: &str, limit: usize) -> Result<(Vec<SurveyedImage>, usize), CephError> {
        survey::images(&self.cluster, pool, limit)
    }

    /// The value of an option that this client has with an image of a pool: that of the image, of the pool, of a file, or of the
    /// monitors as it connected. Text, as librbd writes it.
    ///
    /// # Errors
    /// If there is no such image, or Ceph does not know the option.
    pub fn in_force(&self, pool: &str, image: &str, option: &str) -> Result<String, CephError> {
        match survey::option(self.cluster.pool(pool, "")?, image, option)? {
            Some(value) => Ok(value),
            None => self.cluster.option(option),
        }
    }

    /// The lock `name` on `object` of a pool's namespace, to be taken as `cookie`, which says to others who holds it.
    ///
    /// # Errors
    /// If there is no such pool.
    pub fn lock(
        &self,
        pool: &str,
        namespace: &str,
        object: &str,
        name: &str,
        cookie: &str,
    ) -> Result<AdvisoryLock, CephError> {
        AdvisoryLock::new(self.cluster.pool(pool, namespace)?, object, name, cookie)
    }
}

/// The error with the caps that its client lacks, if it is for want of them.
fn with_caps(why: CephError, name: &str) -> CephError {
    match why {
        CephError::Call { what, errno: libc::EACCES, text } => CephError::Call {
            what,
            errno: libc::EACCES,
            text: format!(
                "{text}. The key of {name} lacks caps. To look: \"ceph auth caps {name} {CAPS_TO_LOOK}\"; to change: \"ceph auth caps \
                 {name} {CAPS_TO_CHANGE}\""
            ),
        },
        other => other,
    }
}

impl Cluster {
    /// Asks the monitors by a command in JSON.
    ///
    /// # Errors
    /// If they cannot be reached, or refuse.
    pub(crate) fn ask_monitor(&self, command: &str) -> Result<String, CephError> {
        self.command(Recipient::Monitors, command)
    }

    /// Sends a command in JSON, and gives the answer's text.
    fn command(&self, to: Recipient, command: &str) -> Result<String, CephError> {
        let raw = text(command)?;
        let mut commands = [raw.as_ptr()];
        let (mut out, mut said) = (null_mut(), null_mut());
        let (mut out_len, mut said_len) = (0, 0);
        let (lib, handle) = (self.lib, self.handle);
        let (cmd, outs) =
            (commands.as_mut_ptr(), (&raw mut out, &raw mut out_len, &raw mut said, &raw mut said_len));
        // SAFETY: the handle is live; the command is a C string for the call; both answers are written, and given back below.
        let code = unsafe {
            match to {
                Recipient::Monitors => {
                    (lib.rados_mon_command)(handle, cmd, 1, null(), 0, outs.0, outs.1, outs.2, outs.3)
                }
                Recipient::Manager => {
                    (lib.rados_mgr_command)(handle, cmd, 1, null(), 0, outs.0, outs.1, outs.2, outs.3)
                }
                Recipient::Osd(id) => (lib.rados_osd_command)(
                    handle,
                    id as i32,
                    cmd,
                    1,
                    null(),
                    0,
                    outs.0,
                    outs.1,
                    outs.2,
                    outs.3,
                ),
            }
        };
        let take = |text: *mut std::ffi::c_char, len: usize| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: librados says how long what it has written is, and wants it back, once.
            unsafe {
                let bytes = std::slice::from_raw_parts(text.cast::<u8>().cast_const(), len);
                let taken = String::from_utf8_lossy(bytes).into_owned();
                (lib.rados_buffer_free)(text);
                taken
            }
        };
        let (answer, said) = (take(out, out_len), take(said, said_len));
        if code < 0 {
            let why = CephError::call(format!("asking {to}: {command}"), code);
            return Err(why.with_words(said.trim()));
        }
        // Some commands say their answer as a message.
        Ok(if answer.is_empty() { said } else { answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_caps_names_them() {
        let of = |errno: i32| with_caps(CephError::call("asking osd.0", -errno), "client.x").to_string();
        assert!(
            of(libc::EACCES).contains("ceph auth caps client.x mon 'allow rw, allow service config-key rw'"),
            "{}",
            of(libc::EACCES)
        );
        assert!(!of(libc::EINVAL).contains("auth caps"));
    }
}
