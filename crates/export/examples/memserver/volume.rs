//! A volume that answers at once: RAM, or a file read and written synchronously.

use loligo_block::{Answer, Buf, Extent, Reply, ReqError, ReqKind, Request};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The store of the bytes.
#[derive(Debug)]
pub enum Volume {
    /// In memory.
    Ram(Vec<u8>),
    /// In a file.
    File(File, u64),
}

impl Volume {
    /// `size` zero bytes in memory.
    pub fn ram(size: usize) -> Volume {
        Volume::Ram(vec![0; size])
    }

    /// An existing file.
    pub fn file(path: &str) -> std::io::Result<Volume> {
        let f = File::options().read(true).write(true).open(path)?;
        let size = f.metadata()?.len();
        Ok(Volume::File(f, size))
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        match self {
            Volume::Ram(v) => v.len() as u64,
            Volume::File(_, size) => *size,
        }
    }

    /// Carries out one request.
    pub fn answer(&mut self, r: Request) -> Reply {
        Reply { id: r.id, result: self.carry_out(&r) }
    }

    fn carry_out(&mut self, r: &Request) -> Result<Answer, ReqError> {
        match self {
            Volume::Ram(v) => ram(v, r),
            Volume::File(f, _) => file(f, r),
        }
    }
}

fn ram(v: &mut [u8], r: &Request) -> Result<Answer, ReqError> {
    let range = r.offset as usize..(r.offset + r.len) as usize;
    match &r.kind {
        ReqKind::Read => return Ok(data(Buf::copy_of(&v[range]))),
        ReqKind::Write(p) => v[range].copy_from_slice(p),
        ReqKind::WriteZeroes { .. } | ReqKind::Discard => v[range].fill(0),
        ReqKind::Flush => {}
        ReqKind::Status => {
            let zero = |c: &[u8]| c.iter().all(|b| *b == 0);
            let extent = |c: &[u8]| Extent { len: c.len() as u64, allocated: !zero(c), zero: zero(c) };
            return Ok(Answer::Extents(v[range].chunks(64 << 10).map(extent).collect()));
        }
    }
    Ok(Answer::Done)
}

fn file(f: &File, r: &Request) -> Result<Answer, ReqError> {
    let io = |_: std::io::Error| ReqError::Io;
    match &r.kind {
        ReqKind::Read => {
            let mut b = Buf::alloc(r.len as usize);
            f.read_exact_at(&mut b, r.offset).map_err(io)?;
            return Ok(data(b));
        }
        ReqKind::Write(p) => f.write_all_at(p, r.offset).map_err(io)?,
        ReqKind::WriteZeroes { unmap: false } => {
            let zeros = Buf::zeroed((1 << 20).min(r.len as usize));
            for at in (0..r.len).step_by(1 << 20) {
                let n = zeros.len().min((r.len - at) as usize);
                f.write_all_at(&zeros[..n], r.offset + at).map_err(io)?;
            }
        }
        ReqKind::WriteZeroes { unmap: true } | ReqKind::Discard => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(f, flags, r.offset, r.len).map_err(|_| ReqError::Io)?;
        }
        ReqKind::Flush => f.sync_data().map_err(io)?,
        ReqKind::Status => return extents(f, r.offset, r.len).map(Answer::Extents),
    }
    if r.fua {
        f.sync_data().map_err(io)?;
    }
    Ok(Answer::Done)
}

fn extents(f: &File, offset: u64, len: u64) -> Result<Vec<Extent>, ReqError> {
    let (mut at, end, mut out) = (offset, offset + len, Vec::new());
    while at < end {
        let data = match seek(f, SeekFrom::Data(at)) {
            Ok(d) => d.min(end),
            Err(Errno::NXIO) => end,
            Err(_) => return Err(ReqError::Io),
        };
        if data > at {
            out.push(Extent { len: data - at, allocated: false, zero: true });
        }
        if data < end {
            let hole = seek(f, SeekFrom::Hole(data)).map_err(|_| ReqError::Io)?.min(end);
            out.push(Extent { len: hole - data, allocated: true, zero: false });
            at = hole;
        } else {
            at = end;
        }
    }
    Ok(out)
}

fn data(b: Buf) -> Answer {
    Answer::Data(std::iter::once(b.freeze()).collect())
}
