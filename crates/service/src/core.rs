//! The core: opened, locked, and known again.

use anyhow::{Result, bail};
use loligo_block::{DeviceFile, DeviceSpec, Identity, OpenOptions};
use loligo_cache::superblock::CoreIdentity;

/// The core of a volume, open and locked.
#[derive(Debug)]
pub(crate) struct OpenCore {
    pub(crate) spec: DeviceSpec,
    pub(crate) file: DeviceFile,
    pub(crate) identity: CoreIdentity,
}

/// Opens and locks what `spec` names.
///
/// # Errors
/// Where it is not there, or in use.
pub(crate) fn open(spec: DeviceSpec) -> Result<OpenCore> {
    let file = match DeviceFile::open(spec.path(), &OpenOptions::default()) {
        Ok(file) => file,
        Err(e) if !spec.path().exists() => bail!("the core cannot be opened: {e}; check --core"),
        Err(e) => bail!("the core cannot be opened: {e}"),
    };
    for warning in file.warnings() {
        eprintln!("warning: {warning}");
    }
    let identity = CoreIdentity { size: file.geometry().size, id: identity_text(file.identity()) };
    Ok(OpenCore { spec, file, identity })
}

/// What the superblock remembers: empty for files, which are known by their size.
fn identity_text(identity: &Identity) -> String {
    match identity {
        Identity::Device { id, offset } => format!("{id}+{offset}"),
        Identity::Size(_) => String::new(),
    }
}

/// The core in words.
pub(crate) fn describe(core: &CoreIdentity) -> String {
    if core.id.is_empty() {
        format!("one of {} bytes", core.size)
    } else {
        format!("device {} of {} bytes", core.id, core.size)
    }
}
