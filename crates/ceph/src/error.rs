//! Errors of Ceph.

use loligo_block::KeyedText;

/// A call that failed, or libraries that are not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CephError {
    /// No librados or librbd, or one that lacks a function.
    #[error("{library} cannot be used ({why}): apt-get install librbd1")]
    Library {
        /// The name of the library.
        library: &'static str,
        /// The loader's words.
        why: String,
    },
    /// A call returned an error number.
    #[error("{what}: {text}")]
    Call {
        /// The deed and its object.
        what: String,
        /// The error number, positive.
        errno: i32,
        /// The error in words, with the mend where there is one.
        text: String,
    },
    /// A refusal in words.
    #[error("{0}")]
    Named(KeyedText),
}

impl CephError {
    /// Of a return code, which is negative.
    pub(crate) fn call(what: impl Into<String>, code: i32) -> CephError {
        let errno = code.saturating_neg();
        CephError::Call { what: what.into(), errno, text: describe(errno) }
    }

    /// The same, with what a daemon said of it.
    pub(crate) fn with_words(self, said: &str) -> CephError {
        match self {
            CephError::Call { what, errno, text } if !said.is_empty() => {
                CephError::Call { what, errno, text: format!("{text}: {said}") }
            }
            other => other,
        }
    }

    /// A refusal.
    pub(crate) fn named(why: impl Into<KeyedText>) -> CephError {
        CephError::Named(why.into())
    }

    /// The error number of a failed call.
    pub fn errno(&self) -> Option<i32> {
        match self {
            CephError::Call { errno, .. } => Some(*errno),
            CephError::Library { .. } | CephError::Named(_) => None,
        }
    }
}

/// Ceph's error numbers in words.
fn describe(errno: i32) -> String {
    let said = std::io::Error::from_raw_os_error(errno);
    match errno {
        libc::EACCES | libc::EPERM => format!("{said}: is the keyring the client's, and may it do this?"),
        libc::ETIMEDOUT => format!("{said}: is the monitor's address right, and the cluster up?"),
        libc::ESHUTDOWN => "this client is blocklisted: another took over".to_owned(),
        _ => said.to_string(),
    }
}

/// A refusal in words.
pub(crate) fn refuse<T>(why: impl Into<KeyedText>) -> Result<T, CephError> {
    Err(CephError::named(why))
}

/// A return code as a result.
pub(crate) fn check(what: impl FnOnce() -> String, code: i32) -> Result<i32, CephError> {
    if code < 0 { Err(CephError::call(what(), code)) } else { Ok(code) }
}
