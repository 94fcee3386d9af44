//! Requests and replies: what a header means, whether it is allowed, and what goes back.

use super::export::Export;
use super::output::Output;
use super::proto::{self, RequestHeader, chunk, cmd, cmd_flag, errno};
use loligo_block::{Extent, ReqError, Segments};

/// Longest range a block status looks at, in bytes; the answer may cover less than was asked for. Every block of it is looked at in
/// one turn of the volume's thread, for which all its other clients wait.
const STATUS_RANGE: u32 = 32 << 20;
/// Most extents in one answer.
const STATUS_EXTENTS: usize = 8192;

/// A request that was found valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// The bytes of the range.
    Read,
    /// New content, whose bytes follow.
    Write,
    /// Everything answered becomes durable.
    Flush,
    /// The range may be forgotten.
    Trim,
    /// The range becomes zeros.
    WriteZeroes {
        /// The space may be given back.
        unmap: bool,
        /// The client wants it only if it is cheap.
        fast: bool,
    },
    /// The range will be read soon.
    Cache,
    /// Asks which parts hold data.
    Status {
        /// One extent is enough.
        one: bool,
    },
}

/// A refusal: error number on the wire and text for the log of the client.
pub type Refusal = (u32, &'static str);

/// Decides on a header. `structured`, `allocation`: what the handshake agreed on.
pub fn check(
    export: &Export,
    structured: bool,
    allocation: bool,
    h: &RequestHeader,
) -> Result<Command, Refusal> {
    let allowed = cmd_flag::FUA
        | match h.command {
            cmd::READ if structured => cmd_flag::DF,
            cmd::WRITE_ZEROES => cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
            cmd::BLOCK_STATUS => cmd_flag::REQ_ONE,
            _ => 0,
        };
    let command = match h.command {
        cmd::READ => Command::Read,
        cmd::WRITE => Command::Write,
        cmd::FLUSH => Command::Flush,
        cmd::TRIM => Command::Trim,
        cmd::CACHE => Command::Cache,
        cmd::WRITE_ZEROES => Command::WriteZeroes {
            unmap: h.flags & cmd_flag::NO_HOLE == 0,
            fast: h.flags & cmd_flag::FAST_ZERO != 0,
        },
        cmd::BLOCK_STATUS => Command::Status { one: h.flags & cmd_flag::REQ_ONE != 0 },
        _ => return Err((errno::EINVAL, "this server does not know the command")),
    };
    if h.flags & !allowed != 0 {
        return Err((errno::EINVAL, "a flag that this command does not have"));
    }
    let writes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes { .. });
    if writes && export.read_only {
        return Err((errno::EPERM, "the export is read-only"));
    }
    if command == Command::Flush {
        return if h.offset == 0 && h.len == 0 {
            Ok(command)
        } else {
            Err((errno::EINVAL, "a flush has neither offset nor length"))
        };
    }
    if h.len == 0 {
        return Err((errno::EINVAL, "a request of no length"));
    }
    if matches!(command, Command::Read | Command::Write) && h.len > export.max_block {
        return Err((errno::EINVAL, "longer than the largest block that the export announces"));
    }
    if h.offset.checked_add(u64::from(h.len)).is_none_or(|end| end > export.size) {
        let full = matches!(command, Command::Write | Command::WriteZeroes { .. });
        let number = if full { errno::ENOSPC } else { errno::EINVAL };
        return Err((number, "the range reaches past the end of the export"));
    }
    let mask = export.min_block - 1;
    if h.len & mask != 0 || h.offset & u64::from(mask) != 0 {
        return Err((
            errno::EINVAL,
            "offset or length is not a multiple of the minimum block that is announced",
        ));
    }
    if matches!(command, Command::Status { .. }) && !allocation {
        return Err((errno::EINVAL, "base:allocation was not negotiated for this export"));
    }
    if matches!(command, Command::WriteZeroes { fast: true, .. }) && !export.fast_zero {
        return Err((errno::ENOTSUP, "zeroing is not faster than writing here"));
    }
    Ok(command)
}

/// The length to ask the volume for.
pub fn effective_len(export: &Export, command: Command, len: u32) -> u32 {
    match command {
        Command::Status { .. } => len.min(STATUS_RANGE),
        // Reading ahead is a hint: as much of it as one read may carry is taken.
        Command::Cache => len.min(export.max_block),
        _ => len,
    }
}

/// The wire's number for a volume's error.
pub fn refusal(command: Command, e: ReqError) -> Refusal {
    match e {
        ReqError::Io => (errno::EIO, "a device below failed, or the data is damaged"),
        ReqError::Invalid => (errno::EINVAL, "the volume does not take this range"),
        ReqError::NoSpace => (errno::ENOSPC, "no space behind the device"),
        // The protocol keeps ENOTSUP for zeroing that was asked to be fast.
        ReqError::Unsupported if matches!(command, Command::WriteZeroes { fast: true, .. }) => {
            (errno::ENOTSUP, "zeroing is not faster than writing here")
        }
        ReqError::Unsupported => (errno::EINVAL, "not supported by the device below"),
        ReqError::Shutdown => (errno::ESHUTDOWN, "the volume is stopping"),
    }
}

/// Sends a success without content.
pub fn send_done(out: &mut Output, cookie: u64) {
    simple(out, 0, cookie);
}

/// Sends an error.
pub fn send_error(out: &mut Output, structured: bool, cookie: u64, (number, text): Refusal) {
    if !structured {
        return simple(out, number, cookie);
    }
    start_chunk(out, chunk::ERROR, cookie, 6 + text.len() as u32);
    out.head(&number.to_be_bytes());
    out.head(&(text.len() as u16).to_be_bytes());
    out.head(text.as_bytes());
}

/// Sends a piece of a read as a chunk of its own.
pub fn send_chunk(out: &mut Output, h: (u64, u64, u32), last: bool, data: Segments) {
    let (cookie, offset, len) = h;
    let flags = if last { chunk::DONE } else { 0 };
    flagged_chunk(out, flags, chunk::OFFSET_DATA, cookie, 8 + len);
    out.head(&offset.to_be_bytes());
    for piece in data {
        out.payload(piece);
    }
}

/// Sends the bytes of a read, or those of a piece of one whose reply cannot be divided. The first comes with what the
/// `whole` read is: its cookie, offset and length.
pub fn send_data(out: &mut Output, structured: bool, whole: Option<(u64, u64, u32)>, data: Segments) {
    if let Some((cookie, offset, len)) = whole {
        start_data(out, structured, cookie, offset, len);
    }
    for piece in data {
        out.payload(piece);
    }
}

fn start_data(out: &mut Output, structured: bool, cookie: u64, offset: u64, len: u32) {
    if structured {
        start_chunk(out, chunk::OFFSET_DATA, cookie, 8 + len);
        out.head(&offset.to_be_bytes());
    } else {
        simple(out, 0, cookie);
    }
}

/// Sends extents, neighbours of one state joined; false when they do not begin to answer the question.
pub fn send_extents(out: &mut Output, cookie: u64, len: u32, one: bool, extents: &[Extent]) -> bool {
    let mut joined: Vec<(u32, u32)> = Vec::new();
    let mut left = u64::from(len);
    for e in extents {
        let take = e.len.min(left);
        let state =
            if e.allocated { 0 } else { proto::STATE_HOLE } | if e.zero { proto::STATE_ZERO } else { 0 };
        let full = one || joined.len() == STATUS_EXTENTS;
        match joined.last_mut() {
            _ if take == 0 => {}
            Some(last) if last.1 == state => last.0 += take as u32,
            Some(_) if full => break,
            _ => joined.push((take as u32, state)),
        }
        left -= take;
    }
    if joined.is_empty() {
        return false;
    }
    start_chunk(out, chunk::BLOCK_STATUS, cookie, 4 + 8 * joined.len() as u32);
    out.head(&proto::BASE_ALLOCATION_ID.to_be_bytes());
    for (len, state) in joined {
        out.head(&len.to_be_bytes());
        out.head(&state.to_be_bytes());
    }
    true
}

fn simple(out: &mut Output, number: u32, cookie: u64) {
    let mut raw = [0; 16];
    raw[0..4].copy_from_slice(&proto::SIMPLE_REPLY_MAGIC.to_be_bytes());
    raw[4..8].copy_from_slice(&number.to_be_bytes());
    raw[8..16].copy_from_slice(&cookie.to_be_bytes());
    out.head(&raw);
}

fn start_chunk(out: &mut Output, kind: u16, cookie: u64, len: u32) {
    flagged_chunk(out, chunk::DONE, kind, cookie, len);
}

fn flagged_chunk(out: &mut Output, flags: u16, kind: u16, cookie: u64, len: u32) {
    let mut raw = [0; 20];
    raw[0..4].copy_from_slice(&proto::STRUCTURED_REPLY_MAGIC.to_be_bytes());
    raw[4..6].copy_from_slice(&flags.to_be_bytes());
    raw[6..8].copy_from_slice(&kind.to_be_bytes());
    raw[8..16].copy_from_slice(&cookie.to_be_bytes());
    raw[16..20].copy_from_slice(&len.to_be_bytes());
    out.head(&raw);
}
