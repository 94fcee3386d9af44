//! Attaching an image as long as somebody waits for it.

pub use crate::given_up::has_left_clients;
pub use crate::waits::Cancellable;

use crate::CephError;
use crate::attach::{AttachRequest, Attachment, attach_unless};
use crate::error::refuse;
use crate::given_up::CancelFlag;
use crate::lock_record::LockRecord;
use crate::waits::LOOK;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

/// A message of the thread of an attach.
enum Said {
    /// This is to be written down, and how that went is waited for.
    Remember(Box<LockRecord>, Sender<Result<(), String>>),
    Attachment(Box<Result<Attachment, CephError>>),
}

impl Said {
    /// Nobody hears it any more: an image that was taken keeps its lock, as that of a client which has died.
    fn unheard(self) {
        if let Said::Attachment(taken) = self
            && let Ok(taken) = *taken
        {
            taken.image.abandon();
        }
    }
}

/// Takes an image, as long as `goes_on` says so, which is asked some times a second; nothing: it was given up.
/// Nothing more is changed by it then, and what was noted by `remember` knows its client.
///
/// # Errors
/// As [`crate::attach::attach`].
pub fn attach_while(
    request: AttachRequest<'_>,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Option<Attachment>, CephError> {
    let AttachRequest { spec, cache, steal, without_cache, destage, quiesce_attempts, lease, remember } =
        request;
    let (says, said) = channel();
    let cut = Arc::new(CancelFlag::default());
    let (spec, given_up) = (spec.clone(), cut.clone());
    let work = move || {
        let unheard = || "the attach was given up".to_owned();
        let mut ask = |record: &LockRecord| {
            let (answers, answer) = channel();
            let asked = says.send(Said::Remember(Box::new(record.clone()), answers));
            asked.map_err(|_| unheard())?;
            answer.recv().map_err(|_| unheard())?
        };
        let remember = &mut ask;
        let spec = &spec;
        let request =
            AttachRequest { spec, cache, steal, without_cache, destage, quiesce_attempts, lease, remember };
        let taken = attach_unless(request, &given_up);
        if let Err(unheard) = given_up.send(&says, Said::Attachment(Box::new(taken))) {
            unheard.unheard();
        }
    };
    let thread = std::thread::Builder::new().name("rbd-take".to_owned());
    thread.spawn(work).map_err(|e| CephError::Named(format!("no thread can be had: {e}")))?;
    loop {
        match said.recv_timeout(LOOK) {
            // Whoever asked may be waiting for nothing else.
            Ok(Said::Remember(record, answers)) => drop(answers.send(remember(&record))),
            Ok(Said::Attachment(taken)) => return taken.map(Some),
            Err(RecvTimeoutError::Timeout) if goes_on() => {}
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return refuse("the thread that took the image has ended"),
        }
    }
    cut.cut();
    said.try_iter().for_each(Said::unheard);
    Ok(None)
}
