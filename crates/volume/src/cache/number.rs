//! The file that the core of a cache was last, by its number: a cache that knows its core by the size alone,
//! and has nothing clean to compare with it, has no other witness.

use crate::core::OpenCore;
use anyhow::{Context, Result};
use loligo_block::SyncIo;
use loligo_engine::open::Opened;
use loligo_format::superblock::Superblock;

/// The numbers of a core: of its file, or of the file under its loop device. Empty where it has none.
fn of(core: &OpenCore) -> String {
    let names = core.spec.names().names;
    let numbers: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("file:")).collect();
    numbers.join(" ")
}

/// True if one of the numbers is among those that were `noted`. A file system may call itself otherwise at each mount: the
/// number within it and the moment in which the file was made say enough.
fn meet(noted: &str, now: &str) -> bool {
    let lasts = |number: &str| {
        let (_, rest) = number.split_once(':')?;
        let made = rest.split_once(':')?.1.split('+').next()?;
        (made != "0").then(|| rest.to_owned())
    };
    let same = |a: &str, b: &str| a == b || lasts(a).is_some_and(|a| lasts(b).as_ref() == Some(&a));
    noted.split(' ').any(|a| now.split(' ').any(|b| same(a, b)))
}

/// True if `core` is another file than the cache had last.
pub(super) fn is_another(sb: &Superblock, core: &OpenCore) -> bool {
    !sb.core_record.is_empty() && !meet(&sb.core_record, &of(core))
}

/// Notes which file the core is, where the cache knows it by nothing else. Durable when this returns.
///
/// # Errors
/// If the superblock cannot be written.
pub(super) fn note(opened: &mut Opened, dev: &mut dyn SyncIo, core: &OpenCore) -> Result<()> {
    let now = of(core);
    if !core.identity.id.is_empty() || opened.superblock.core_record == now {
        return Ok(());
    }
    // As it is on the device: a core that grew is not written down.
    let mut stored = Superblock::load(dev).context("the superblock cannot be read again")?;
    stored.core_record.clone_from(&now);
    stored.store(dev).context("the superblock cannot be written")?;
    (opened.superblock.core_record, opened.superblock.generation) = (now, stored.generation);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::meet;

    #[test]
    fn a_file_is_known_by_number_and_birth_on_any_mount() {
        assert!(meet("a1:7:1000", "a1:7:1000"));
        assert!(meet("a1:7:1000", "b2:7:1000"), "mounted anew");
        assert!(!meet("a1:7:1000", "a1:8:1000"));
        assert!(!meet("a1:7:1000", "a1:7:1001"), "a number that is used again");
        assert!(!meet("a1:7:0", "b2:7:0"), "nothing tells when it was made");
        assert!(meet("a1:7:0", "a1:7:0"));
        assert!(!meet("a1:7:1000+4096", "a1:7:1000"), "another part of it");
        assert!(!meet("a1:7:1000", ""));
    }
}
