//! Attaching an image as a core: who has it, whether it is fit, what was left of an earlier attach, and the lock.
//!
//! `machine` decides, phase by phase, and does no I/O. `driver` carries its steps out with librados and librbd. The phases
//! are in `look`, `open`, `takeover` and `settle`; `checks` has the refusals.

mod checks;
mod driver;
mod look;
mod machine;
mod open;
mod request;
mod settle;
#[cfg(test)]
mod sim;
mod step;
mod takeover;

use crate::CephError;
use crate::given_up::CancelFlag;

pub(crate) use driver::attach_unless;
pub use request::{AttachRequest, Attachment, Cache, Destage};

/// Attaches an image.
///
/// # Errors
/// If Ceph cannot be reached, the image is not fit, or somebody has it; nothing was changed then, except that a holder that
/// was to be fenced may be.
pub fn attach(request: AttachRequest<'_>) -> Result<Attachment, CephError> {
    attach_unless(request, &CancelFlag::default())
}
