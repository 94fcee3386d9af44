//! Numbers of the NBD protocol (`doc/proto.md` of the NetworkBlockDevice project). All integers are big endian.

/// First eight bytes of a server's greeting, `NBDMAGIC`.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Starts every option of a client, and follows [`MAGIC`] in the greeting: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of a request's header.
pub const REQUEST_LEN: usize = 28;
/// Bytes of an option's header.
pub const OPTION_LEN: usize = 16;
/// Longest string the protocol allows, in bytes.
pub const MAX_STRING: usize = 4096;
/// Largest payload of one read or write that the protocol recommends to accept, in bytes.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Handshake flags of the server.
pub mod handshake {
    /// Options may fail without ending the connection.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The 124 zero bytes after `EXPORT_NAME` may be left out.
    pub const NO_ZEROES: u16 = 2;
}

/// The options that a client may ask for before transmission.
pub mod option {
    /// Enter transmission; cannot fail but by closing.
    pub const EXPORT_NAME: u32 = 1;
    /// End the connection.
    pub const ABORT: u32 = 2;
    /// Names of the exports.
    pub const LIST: u32 = 3;
    /// Continue under TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and enter transmission.
    pub const GO: u32 = 7;
    /// Allow structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Names of metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts for block status.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of reply to an option.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information on an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = 0x8000_0001;
    /// Forbidden by the server's configuration.
    pub const ERR_POLICY: u32 = 0x8000_0002;
    /// The option's data make no sense.
    pub const ERR_INVALID: u32 = 0x8000_0003;
    /// TLS must be started first.
    pub const ERR_TLS_REQD: u32 = 0x8000_0005;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    /// The server is stopping.
    pub const ERR_SHUTDOWN: u32 = 0x8000_0007;
    /// The option's data are too long.
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
}

/// Kinds of information on an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod export {
    /// Set in every export.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes fail with EPERM.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Knows flush.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Knows forced unit access.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Seeks are slow.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// Knows trim.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Knows write zeroes.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Knows the "do not fragment" flag of a read (only with structured replies).
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes answered on every other.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Knows cache (read ahead).
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Knows the "only if fast" flag of write zeroes.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands of the transmission phase.
pub mod cmd {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows the header.
    pub const WRITE: u16 = 1;
    /// Disconnect, once everything before is answered.
    pub const DISC: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Forget a range.
    pub const TRIM: u16 = 4;
    /// Read ahead.
    pub const CACHE: u16 = 5;
    /// Zero a range.
    pub const WRITE_ZEROES: u16 = 6;
    /// Asks which parts hold data.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod cmd_flag {
    /// Durable before the answer.
    pub const FUA: u16 = 1;
    /// Zero without giving up the space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Answer a read in one piece.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zero only if that is faster than writing.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of structured replies.
pub mod chunk {
    /// Flag: the last chunk of its reply.
    pub const DONE: u16 = 1;
    /// No content.
    pub const NONE: u16 = 0;
    /// Bytes at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error with a text.
    pub const ERROR: u16 = (1 << 15) | 1;
}

/// Error numbers on the wire.
pub mod errno {
    /// Not permitted.
    pub const EPERM: u32 = 1;
    /// Input or output error.
    pub const EIO: u32 = 5;
    /// Invalid argument.
    pub const EINVAL: u32 = 22;
    /// No space left.
    pub const ENOSPC: u32 = 28;
    /// Not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server is stopping.
    pub const ESHUTDOWN: u32 = 108;
}

/// The one metadata context served.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// State of an extent: nothing is stored there.
pub const STATE_HOLE: u32 = 1;
/// State of an extent: it reads as zeros.
pub const STATE_ZERO: u32 = 2;

/// Big-endian integers from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Wire<'a>(pub &'a [u8]);

impl<'a> Wire<'a> {
    /// The next `n` bytes, or nothing if there are fewer.
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    /// The next two bytes as a number.
    pub fn u16(&mut self) -> Option<u16> {
        self.bytes(2).and_then(|b| b.try_into().ok()).map(u16::from_be_bytes)
    }

    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes)
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> Option<u64> {
        self.bytes(8).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes)
    }

    /// A string behind its four-byte length, bounded by [`MAX_STRING`].
    pub fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        if len > MAX_STRING {
            return None;
        }
        std::str::from_utf8(self.bytes(len)?).ok()
    }
}

/// A request's header as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags of [`cmd_flag`].
    pub flags: u16,
    /// One of [`cmd`].
    pub command: u16,
    /// The client's name for the request.
    pub cookie: u64,
    /// Bytes from the start of the export.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl RequestHeader {
    /// Reads a header; nothing when the magic is wrong and the stream therefore is out of step.
    pub fn parse(raw: &[u8; REQUEST_LEN]) -> Option<RequestHeader> {
        let mut w = Wire(raw);
        if w.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(RequestHeader {
            flags: w.u16()?,
            command: w.u16()?,
            cookie: w.u64()?,
            offset: w.u64()?,
            len: w.u32()?,
        })
    }

    /// The header as it goes over the wire (what a client sends).
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut raw = [0; REQUEST_LEN];
        raw[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        raw[4..6].copy_from_slice(&self.flags.to_be_bytes());
        raw[6..8].copy_from_slice(&self.command.to_be_bytes());
        raw[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        raw[16..24].copy_from_slice(&self.offset.to_be_bytes());
        raw[24..28].copy_from_slice(&self.len.to_be_bytes());
        raw
    }
}
