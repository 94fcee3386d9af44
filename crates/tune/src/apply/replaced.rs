//! Files that are written anew in one step, as what they were: owner, rights and extended attributes with them.

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::{Error, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

/// Bytes of an extended attribute and of a list of them, at most (xattr(7)).
const LONGEST: usize = 64 << 10;

/// Writes a file anew in one step, durably. Owner, rights, lists of access and other extended attributes stay.
///
/// # Errors
/// If it cannot be written, or one of those cannot be kept: the file is as it was then.
pub(super) fn replace(path: &Path, content: &[u8]) -> std::result::Result<(), String> {
    let fail = |why: Error| format!("{} cannot be written: {why}", path.display());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.loligo-tune"));
    let mut file = File::create(&beside).map_err(fail)?;
    let done = (|| {
        match File::open(path) {
            Ok(before) => {
                let of = before.metadata()?;
                fchown(&file, Some(of.uid()), Some(of.gid()))?;
                file.set_permissions(of.permissions())?;
                attributes(&before, &file)?;
            }
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            Err(why) => return Err(why),
        }
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        File::open(folder)?.sync_all()
    })();
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done.map_err(fail)
}

/// Removes a file, if it is there.
///
/// # Errors
/// If it cannot be removed.
pub(super) fn gone(path: &Path) -> std::result::Result<(), String> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {why}", path.display())),
        _ => Ok(()),
    }
}

/// Gives a file the extended attributes of another. Lists of access are among them.
fn attributes(from: &File, to: &File) -> Result<()> {
    let mut names = vec![0; LONGEST];
    let len = match flistxattr(from, &mut names[..]) {
        // A file system without them.
        Err(Errno::OPNOTSUPP) => return Ok(()),
        said => said?,
    };
    let mut value = vec![0; LONGEST];
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let shown = String::from_utf8_lossy(name);
        let lost = |why: Errno| Error::other(format!("its attribute {shown} cannot be kept: {why}"));
        let name = CString::new(name)?;
        let len = fgetxattr(from, &name, &mut value[..]).map_err(lost)?;
        fsetxattr(to, &name, &value[..len], XattrFlags::empty()).map_err(lost)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn rights_owner_and_attributes_stay_with_a_new_content() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ceph.conf");
        std::fs::write(&path, b"a\xe9\n").expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("rights");
        let owner =
            if rustix::process::geteuid().is_root() { 64045 } else { rustix::process::geteuid().as_raw() };
        std::os::unix::fs::chown(&path, Some(owner), None).expect("an owner");
        let file = File::open(&path).expect("a file");
        // user::rw-, user:1:r--, group::r--, mask::r--, other::---, as acl(5) and the kernel's posix_acl_xattr.h have it.
        let entries =
            [(1u16, 6u16, u32::MAX), (2, 4, 1), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            acl.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
        }
        let attributes = [(c"user.note", &b"kept"[..]), (c"system.posix_acl_access", &acl[..])];
        let set: Vec<_> = attributes
            .iter()
            .filter(|(name, value)| fsetxattr(&file, *name, value, XattrFlags::empty()).is_ok())
            .collect();
        replace(&path, b"b\xff\n").expect("written");
        let after = File::open(&path).expect("a file");
        let of = after.metadata().expect("its rights");
        assert_eq!((of.mode() & 0o777, of.uid()), (0o640, owner));
        assert_eq!(std::fs::read(&path).expect("bytes"), b"b\xff\n");
        for (name, value) in set {
            let mut kept = [0; 256];
            let len = fgetxattr(&after, *name, &mut kept[..]).expect("it is there");
            assert_eq!(&kept[..len], *value, "{name:?}");
        }
        let all = std::fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(all, 1, "nothing is left beside it");
    }
}
