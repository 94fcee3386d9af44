//! The outcome of a command that did not do what was asked: a type, so that nobody has to read its words.

use crate::api::status::Status;
use hyper::StatusCode;
use loligo_block::{IoError, IoKind, KeyedText, keyed};
use loligo_format::pool::PoolError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Nobody listens where the volume, or the daemon, would.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct NobodyThere {
    /// The message: who was asked, where, and what to look at.
    pub words: String,
    /// The outcome of the command.
    pub outcome: Outcome,
}

/// A cache or core that is not there: the one refusal that mends itself, for it may come.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Absent(pub KeyedText);

/// A core of a pool that is in use already.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InUse(pub String);

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was tried, and did not succeed.
    Failed,
    /// It was asked in a way that is none.
    Usage,
    /// It cannot be as things are, and nothing was changed.
    Refused,
    /// It is not over yet, and goes on by itself.
    Waiting,
}

impl Outcome {
    /// The exit status that says so.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Failed => 1,
            Outcome::Usage => 2,
            Outcome::Refused => 3,
            Outcome::Waiting => 4,
        }
    }

    /// Of an error.
    pub fn of(error: &anyhow::Error) -> Outcome {
        error.chain().find_map(Outcome::known).unwrap_or(Outcome::Failed)
    }

    /// The outcome that the type of one error says.
    pub fn known(cause: &(dyn std::error::Error + 'static)) -> Option<Outcome> {
        if let Some(ended) = cause.downcast_ref::<Ended>() {
            return Some(ended.outcome);
        }
        if let Some(nobody) = cause.downcast_ref::<NobodyThere>() {
            return Some(nobody.outcome);
        }
        if let Some(why) = cause.downcast_ref::<PoolError>() {
            return Some(if matches!(why, PoolError::Io(_)) { Outcome::Failed } else { Outcome::Refused });
        }
        if let Some(why) = cause.downcast_ref::<IoError>() {
            let busy = why.errno == rustix::io::Errno::BUSY.raw_os_error();
            return match why.kind {
                _ if busy => Some(Outcome::Refused),
                IoKind::Io | IoKind::NoSpace | IoKind::Gone | IoKind::Fenced => Some(Outcome::Failed),
                IoKind::Unsupported | IoKind::Invalid => None,
            };
        }
        cause.is::<InUse>().then_some(Outcome::Refused)
    }

    /// As the API says it. A request that is none is refused like any other.
    pub fn of_answer(status: StatusCode) -> Outcome {
        match status {
            StatusCode::SERVICE_UNAVAILABLE => Outcome::Waiting,
            s if s.is_client_error() => Outcome::Refused,
            _ => Outcome::Failed,
        }
    }

    /// Of what can be done only to a volume that is served, where it is like this.
    pub fn of_unserved(status: &Status) -> Outcome {
        match status {
            Status::Starting | Status::Serving | Status::Waiting(_) | Status::Stopping => Outcome::Waiting,
            Status::Stopped | Status::Refused(_) | Status::Failed(_) | Status::Lost(_) => Outcome::Refused,
        }
    }
}

/// An error that knows how its command ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct Ended {
    /// The outcome.
    pub outcome: Outcome,
    words: KeyedText,
}

impl Ended {
    /// With these words.
    pub fn with(outcome: Outcome, words: impl Into<KeyedText>) -> Ended {
        Ended { outcome, words: words.into() }
    }

    /// It cannot be, and nothing was changed.
    pub fn refused(words: impl Into<KeyedText>) -> Ended {
        Ended::with(Outcome::Refused, words)
    }

    /// It goes on, and nobody waits any longer.
    pub fn waiting(words: impl Into<KeyedText>) -> Ended {
        Ended::with(Outcome::Waiting, words)
    }
}

/// For what is looked at before anything is changed.
pub trait OrRefused<T> {
    /// Turns an error into a refusal of the command; one that is known to be something else stays that.
    ///
    /// # Errors
    /// Those of the look.
    fn or_refused(self) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrRefused<T> for Result<T, E> {
    fn or_refused(self) -> anyhow::Result<T> {
        self.map_err(|why| {
            let why = why.into();
            if why.chain().any(|cause| cause.is::<Absent>() || Outcome::known(cause).is_some()) {
                return why;
            }
            Ended::refused(keyed!("{why:#}")).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn an_error_keeps_its_outcome_under_whatever_is_said_of_it() {
        let under = |why: anyhow::Error| Outcome::of(&Err::<(), _>(why).context("more").unwrap_err());
        assert_eq!(under(Ended::refused("no").into()), Outcome::Refused);
        assert_eq!(under(Ended::waiting("later").into()), Outcome::Waiting);
        assert_eq!(under(anyhow!("the disk is full")), Outcome::Failed);
        assert_eq!(under(PoolError::TooSmall(1).into()), Outcome::Refused);
        let io = IoError::new(IoKind::Io, "read");
        assert_eq!(under(PoolError::Io(io.clone()).into()), Outcome::Failed);
        assert_eq!(under(IoError { errno: 16, ..io }.into()), Outcome::Refused, "somebody has it open");
        let looked = |why: anyhow::Error| Err::<(), _>(why).or_refused().unwrap_err();
        assert_eq!(Outcome::of(&looked(anyhow!("no such file"))), Outcome::Refused);
        assert_eq!(Outcome::of(&looked(Ended::waiting("later").into())), Outcome::Waiting);
        assert_eq!(format!("{:#}", looked(anyhow!("a").context("b"))), "b: a");
    }

    #[test]
    fn every_outcome_has_an_exit_status_of_its_own() {
        let all = [Outcome::Failed, Outcome::Usage, Outcome::Refused, Outcome::Waiting];
        assert_eq!(all.map(Outcome::exit_code), [1, 2, 3, 4]);
        assert_eq!(Outcome::of_answer(StatusCode::CONFLICT), Outcome::Refused);
        assert_eq!(Outcome::of_answer(StatusCode::SERVICE_UNAVAILABLE), Outcome::Waiting);
        assert_eq!(Outcome::of_answer(StatusCode::INTERNAL_SERVER_ERROR), Outcome::Failed);
    }
}
