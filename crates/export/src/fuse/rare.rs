//! The kernel's requests to a mount beside data: names, attributes, the list of the folder. All of it is answered at once.

use super::attributes::FILE;
use super::session::Session;
use super::wire::{
    self, AttrOut, Dirent, EntryOut, InHeader, OpenOut, ROOT, ReadIn, SetAttrIn, StatfsOut, op,
};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use zerocopy::IntoBytes;

/// The seconds for which the kernel may answer `stat` by itself. Not for ever: a mount whose server is gone
/// should look like one.
const TTL: u64 = 1;

impl Session {
    /// Answers what is neither data nor a promise of it.
    pub(super) fn rare(&mut self, header: InHeader) {
        let InHeader { unique, node, .. } = header;
        match self.answer_to(header.opcode, node) {
            Ok(Some(body)) => self.device.send(unique, &[&body]),
            Ok(None) => {}
            Err(errno) => self.device.refuse(unique, errno),
        }
    }

    /// Nothing: the kernel waits for no answer.
    fn answer_to(&mut self, opcode: u32, node: u64) -> Result<Option<Vec<u8>>, Errno> {
        let body = match opcode {
            op::FORGET | op::BATCH_FORGET => return Ok(None),
            op::LOOKUP => self.lookup(node)?,
            op::GETATTR => self.attributes_of(node),
            op::SETATTR => self.set_attributes(node)?,
            // A folder has no need of a handle either.
            op::OPENDIR => OpenOut { handle: 0, flags: 0, padding: 0 }.as_bytes().to_vec(),
            op::OPEN => {
                let flags = wire::OPEN_DIRECT_IO | wire::OPEN_PARALLEL_WRITES;
                OpenOut { handle: 0, flags, padding: 0 }.as_bytes().to_vec()
            }
            op::READDIR => self.list()?,
            op::STATFS => self.space(),
            // Somebody closes a descriptor, which promises nothing.
            op::FLUSH | op::RELEASE | op::RELEASEDIR | op::DESTROY => Vec::new(),
            op::MKNOD | op::CREATE | op::MKDIR | op::SYMLINK | op::LINK => return Err(Errno::PERM),
            op::UNLINK | op::RMDIR | op::RENAME | op::RENAME2 => return Err(Errno::PERM),
            // The kernel does without, and remembers that.
            _ => return Err(Errno::NOSYS),
        };
        Ok(Some(body))
    }

    fn lookup(&self, parent: u64) -> Result<Vec<u8>, Errno> {
        let body = self.buffer.body();
        let name = body.split(|b| *b == 0).next().unwrap_or_default();
        if parent != ROOT || name != self.name.as_bytes() {
            return Err(Errno::NOENT);
        }
        let entry = EntryOut {
            node: FILE,
            generation: 0,
            entry_valid: TTL,
            attr_valid: TTL,
            entry_valid_ns: 0,
            attr_valid_ns: 0,
            attr: self.attributes.of(FILE),
        };
        Ok(entry.as_bytes().to_vec())
    }

    fn attributes_of(&self, node: u64) -> Vec<u8> {
        let attr = self.attributes.of(node);
        AttrOut { valid: TTL, valid_ns: 0, padding: 0, attr }.as_bytes().to_vec()
    }

    fn set_attributes(&mut self, node: u64) -> Result<Vec<u8>, Errno> {
        if node != FILE {
            return Err(Errno::PERM);
        }
        let asked: SetAttrIn = self.buffer.fixed().ok_or(Errno::INVAL)?;
        let given = |bit: u32, value: u32| (asked.valid & bit != 0).then_some(value);
        let size = self.attributes.size();
        if asked.valid & wire::SET_SIZE != 0 && asked.size != size {
            tracing::warn!(wanted = asked.size, size, "a volume cannot be truncated (dd: conv=notrunc)");
            return Err(Errno::PERM);
        }
        let (mode, uid) = (given(wire::SET_MODE, asked.mode), given(wire::SET_UID, asked.uid));
        self.attributes.change(mode, uid, given(wire::SET_GID, asked.gid));
        Ok(self.attributes_of(node))
    }

    fn list(&self) -> Result<Vec<u8>, Errno> {
        let asked: ReadIn = self.buffer.fixed().ok_or(Errno::INVAL)?;
        let entries = [(ROOT, &b"."[..]), (ROOT, b".."), (FILE, self.name.as_bytes())];
        let mut out = Vec::new();
        for (i, (node, name)) in entries.into_iter().enumerate().skip(asked.offset as usize) {
            let kind = self.attributes.of(node).mode >> 12;
            let entry = Dirent { node, next: i as u64 + 1, name_len: name.len() as u32, kind };
            let end = (out.len() + size_of::<Dirent>() + name.len()).next_multiple_of(8);
            if end > asked.size as usize {
                break;
            }
            out.extend_from_slice(entry.as_bytes());
            out.extend_from_slice(name);
            out.resize(end, 0);
        }
        Ok(out)
    }

    fn space(&self) -> Vec<u8> {
        // Also what a loop device over the file takes for the unit of discards.
        let unit = self.block as u32;
        let space = StatfsOut {
            blocks: self.attributes.size() / self.block,
            free: 0,
            available: 0,
            files: 1,
            files_free: 0,
            block: unit,
            name_len: 255,
            fragment: unit,
            padding: 0,
            spare: [0; 6],
        };
        space.as_bytes().to_vec()
    }
}
