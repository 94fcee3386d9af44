//! The handshake: from the greeting to transmission, one option at a time.

use super::export::Export;
use super::output::Output;
use super::proto::{self, Wire, handshake, info, option, reply};

/// The state of TLS on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Not offered.
    Off,
    /// Nothing but starting it is served.
    Required,
    /// Started.
    On,
}

/// The result of the input so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing can be done without more input.
    More,
    /// So many bytes are dealt with.
    Used(usize),
    /// So many bytes are dealt with, and the rest of the connection is under TLS.
    StartTls(usize),
    /// So many bytes are dealt with; requests follow.
    Transmit(usize),
    /// The client asked for the end; so many bytes are dealt with.
    Abort(usize),
    /// Out of step with the protocol; the reason.
    Broken(&'static str),
}

/// State of one handshake.
#[derive(Debug)]
pub struct Negotiation {
    flags_seen: bool,
    no_zeroes: bool,
    structured: bool,
    /// The name for which base:allocation was chosen.
    meta_for: Option<String>,
    tls: Tls,
    /// Bytes of an oversized option still to drop.
    skip: u64,
    option_data: usize,
}

impl Negotiation {
    /// Greets the client. Options with more than `option_data` bytes will be refused.
    pub fn new(tls: Tls, option_data: usize, out: &mut Output) -> Negotiation {
        out.head(&proto::MAGIC.to_be_bytes());
        out.head(&proto::OPTION_MAGIC.to_be_bytes());
        out.head(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        Negotiation {
            flags_seen: false,
            no_zeroes: false,
            structured: false,
            meta_for: None,
            tls,
            skip: 0,
            option_data,
        }
    }

    /// True if structured replies were agreed on.
    pub fn structured(&self) -> bool {
        self.structured
    }

    /// True if base:allocation was chosen for the export in use.
    pub fn allocation(&self) -> bool {
        self.meta_for.is_some()
    }

    /// Deals with the front of `input`.
    pub fn step(&mut self, export: &Export, stopping: bool, input: &[u8], out: &mut Output) -> Step {
        if self.skip > 0 {
            let n = input.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= n as u64;
            return if n == 0 { Step::More } else { Step::Used(n) };
        }
        if !self.flags_seen {
            return self.client_flags(input);
        }
        let mut w = Wire(input);
        let (Some(magic), Some(opt), Some(len)) = (w.u64(), w.u32(), w.u32()) else { return Step::More };
        if magic != proto::OPTION_MAGIC {
            return Step::Broken("an option without its magic number");
        }
        if len as usize > self.option_data {
            if opt == option::EXPORT_NAME {
                return Step::Broken("an export name that is too long");
            }
            self.skip = u64::from(len);
            refuse(out, opt, reply::ERR_TOO_BIG, "the option's data are longer than this server accepts");
            return Step::Used(proto::OPTION_LEN);
        }
        let Some(data) = w.bytes(len as usize) else { return Step::More };
        self.option(export, stopping, opt, data, out, proto::OPTION_LEN + len as usize)
    }

    fn client_flags(&mut self, input: &[u8]) -> Step {
        let Some(flags) = Wire(input).u32() else { return Step::More };
        if flags & !u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES) != 0 {
            return Step::Broken("client flags that this server did not offer");
        }
        self.no_zeroes = flags & u32::from(handshake::NO_ZEROES) != 0;
        self.flags_seen = true;
        Step::Used(4)
    }

    fn option(
        &mut self,
        export: &Export,
        stopping: bool,
        opt: u32,
        data: &[u8],
        out: &mut Output,
        used: usize,
    ) -> Step {
        if self.tls == Tls::Required && !matches!(opt, option::STARTTLS | option::ABORT) {
            if opt == option::EXPORT_NAME {
                return Step::Broken("an export name before TLS, which this server requires");
            }
            refuse(out, opt, reply::ERR_TLS_REQD, "this server serves TLS clients only");
            return Step::Used(used);
        }
        match opt {
            option::ABORT => {
                answer(out, opt, reply::ACK, &[]);
                return Step::Abort(used);
            }
            option::EXPORT_NAME => return self.export_name(export, stopping, data, out, used),
            option::STARTTLS => match self.tls {
                _ if !data.is_empty() => refuse(out, opt, reply::ERR_INVALID, "STARTTLS carries no data"),
                Tls::Off => refuse(out, opt, reply::ERR_POLICY, "this server is configured without TLS"),
                Tls::On => refuse(out, opt, reply::ERR_INVALID, "TLS is already started"),
                Tls::Required => {
                    answer(out, opt, reply::ACK, &[]);
                    // What was said in the clear does not count.
                    self.tls = Tls::On;
                    self.structured = false;
                    self.meta_for = None;
                    return Step::StartTls(used);
                }
            },
            option::LIST if !data.is_empty() => refuse(out, opt, reply::ERR_INVALID, "LIST carries no data"),
            option::LIST => {
                let name = export.name.as_bytes();
                answer(out, opt, reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name]);
                answer(out, opt, reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if !data.is_empty() => {
                refuse(out, opt, reply::ERR_INVALID, "STRUCTURED_REPLY carries no data");
            }
            option::STRUCTURED_REPLY => {
                self.structured = true;
                answer(out, opt, reply::ACK, &[]);
            }
            option::INFO | option::GO => return self.info(export, stopping, opt, data, out, used),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta(export, opt, data, out),
            _ => refuse(out, opt, reply::ERR_UNSUP, "this server does not know the option"),
        }
        Step::Used(used)
    }

    fn export_name(
        &mut self,
        export: &Export,
        stopping: bool,
        name: &[u8],
        out: &mut Output,
        used: usize,
    ) -> Step {
        let known = std::str::from_utf8(name).is_ok_and(|n| export.answers_to(n));
        if !known || stopping {
            return Step::Broken("an export that is not served here");
        }
        self.keep_meta_for(name);
        out.head(&export.size.to_be_bytes());
        out.head(&export.flags(self.structured).to_be_bytes());
        if !self.no_zeroes {
            out.head(&[0; 124]);
        }
        Step::Transmit(used)
    }

    fn info(
        &mut self,
        export: &Export,
        stopping: bool,
        opt: u32,
        data: &[u8],
        out: &mut Output,
        used: usize,
    ) -> Step {
        let Some((name, wanted)) = parse_info(data) else {
            refuse(out, opt, reply::ERR_INVALID, "the option's data do not have the form that it requires");
            return Step::Used(used);
        };
        if !export.answers_to(name) {
            refuse(out, opt, reply::ERR_UNKNOWN, "no export of this name; ask for the list, or for \"\"");
            return Step::Used(used);
        }
        if stopping {
            refuse(out, opt, reply::ERR_SHUTDOWN, "this server is stopping");
            return Step::Used(used);
        }
        if opt == option::GO {
            self.keep_meta_for(name.as_bytes());
        }
        let kind = |k: u16| k.to_be_bytes();
        answer(
            out,
            opt,
            reply::INFO,
            &[&kind(info::EXPORT), &export.size.to_be_bytes(), &export.flags(self.structured).to_be_bytes()],
        );
        answer(
            out,
            opt,
            reply::INFO,
            &[
                &kind(info::BLOCK_SIZE),
                &export.min_block.to_be_bytes(),
                &export.preferred_block.to_be_bytes(),
                &export.max_block.to_be_bytes(),
            ],
        );
        let asked = |k: u16| wanted.chunks_exact(2).any(|c| c == k.to_be_bytes());
        if asked(info::NAME) {
            answer(out, opt, reply::INFO, &[&kind(info::NAME), export.name.as_bytes()]);
        }
        if asked(info::DESCRIPTION) && !export.description.is_empty() {
            answer(out, opt, reply::INFO, &[&kind(info::DESCRIPTION), export.description.as_bytes()]);
        }
        answer(out, opt, reply::ACK, &[]);
        if opt == option::GO { Step::Transmit(used) } else { Step::Used(used) }
    }

    /// Contexts count only for the name they were chosen with.
    fn keep_meta_for(&mut self, name: &[u8]) {
        if self.meta_for.as_ref().is_some_and(|m| m.as_bytes() != name) {
            self.meta_for = None;
        }
    }

    fn meta(&mut self, export: &Export, opt: u32, data: &[u8], out: &mut Output) {
        let set = opt == option::SET_META_CONTEXT;
        if set {
            self.meta_for = None;
        }
        if !self.structured {
            return refuse(out, opt, reply::ERR_INVALID, "negotiate structured replies first");
        }
        let Some((name, matched)) = parse_meta(data, set) else {
            return refuse(
                out,
                opt,
                reply::ERR_INVALID,
                "the option's data do not have the form that it requires",
            );
        };
        if !export.answers_to(name) {
            return refuse(out, opt, reply::ERR_UNKNOWN, "no export of this name");
        }
        if matched {
            let id = if set { proto::BASE_ALLOCATION_ID } else { 0 };
            answer(out, opt, reply::META_CONTEXT, &[&id.to_be_bytes(), proto::BASE_ALLOCATION.as_bytes()]);
            if set {
                self.meta_for = Some(name.to_owned());
            }
        }
        answer(out, opt, reply::ACK, &[]);
    }
}

/// Export name and wanted kinds (two bytes each) of INFO and GO.
fn parse_info(data: &[u8]) -> Option<(&str, &[u8])> {
    let mut w = Wire(data);
    let name = w.string()?;
    let count = usize::from(w.u16()?);
    let kinds = w.bytes(count * 2)?;
    w.0.is_empty().then_some((name, kinds))
}

/// Export name of a metadata option, and whether its queries mean base:allocation. Without queries a list means all.
fn parse_meta(data: &[u8], set: bool) -> Option<(&str, bool)> {
    let mut w = Wire(data);
    let name = w.string()?;
    let count = w.u32()?;
    let mut matched = count == 0 && !set;
    for _ in 0..count {
        let query = w.string()?;
        matched |= query == proto::BASE_ALLOCATION || (!set && query == "base:");
    }
    w.0.is_empty().then_some((name, matched))
}

fn answer(out: &mut Output, opt: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    out.head(&proto::OPTION_REPLY_MAGIC.to_be_bytes());
    out.head(&opt.to_be_bytes());
    out.head(&kind.to_be_bytes());
    out.head(&(len as u32).to_be_bytes());
    for p in parts {
        out.head(p);
    }
}

fn refuse(out: &mut Output, opt: u32, kind: u32, why: &str) {
    answer(out, opt, kind, &[why.as_bytes()]);
}
