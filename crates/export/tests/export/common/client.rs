//! The client's side of the protocol, as bytes, written from the protocol's text and not with the server's code.

/// Flags and cookie-less part of a request.
pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut b = vec![0x25, 0x60, 0x95, 0x13];
    b.extend(flags.to_be_bytes());
    b.extend(command.to_be_bytes());
    b.extend(cookie.to_be_bytes());
    b.extend(offset.to_be_bytes());
    b.extend(len.to_be_bytes());
    b
}

/// A write with its payload.
pub fn write(flags: u16, cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut b = request(flags, 1, cookie, offset, payload.len() as u32);
    b.extend(payload);
    b
}

/// One option.
pub fn option(opt: u32, data: &[u8]) -> Vec<u8> {
    let mut b = b"IHAVEOPT".to_vec();
    b.extend(opt.to_be_bytes());
    b.extend((data.len() as u32).to_be_bytes());
    b.extend(data);
    b
}

/// Data of INFO and GO.
pub fn info(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut b = (name.len() as u32).to_be_bytes().to_vec();
    b.extend(name.as_bytes());
    b.extend((kinds.len() as u16).to_be_bytes());
    kinds.iter().for_each(|k| b.extend(k.to_be_bytes()));
    b
}

/// Data of the metadata options.
pub fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut b = (name.len() as u32).to_be_bytes().to_vec();
    b.extend(name.as_bytes());
    b.extend((queries.len() as u32).to_be_bytes());
    for q in queries {
        b.extend((q.len() as u32).to_be_bytes());
        b.extend(q.as_bytes());
    }
    b
}

/// The replies to options in `b`: option, kind, data.
pub fn option_replies(mut b: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut out = Vec::new();
    while !b.is_empty() {
        assert_eq!(b[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let n = |at: usize| u32::from_be_bytes(b[at..at + 4].try_into().unwrap());
        let len = n(16) as usize;
        out.push((n(8), n(12), b[20..20 + len].to_vec()));
        b = &b[20 + len..];
    }
    out
}

/// A reply of the transmission phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// Cookie and error number of a simple reply, with the rest of the bytes that belong to it.
    Simple(u64, u32, Vec<u8>),
    /// Cookie, flags, type and content of a chunk.
    Chunk(u64, u16, u16, Vec<u8>),
}

/// The replies in `b`; `data` bytes follow each successful simple reply.
pub fn replies(mut b: &[u8], data: usize) -> Vec<Got> {
    let mut out = Vec::new();
    while !b.is_empty() {
        let n = |at: usize| u32::from_be_bytes(b[at..at + 4].try_into().unwrap());
        let h = |at: usize| u16::from_be_bytes(b[at..at + 2].try_into().unwrap());
        let c = u64::from_be_bytes(b[8..16].try_into().unwrap());
        let used = match n(0) {
            0x6744_6698 => {
                let data = if n(4) == 0 { data } else { 0 };
                out.push(Got::Simple(c, n(4), b[16..16 + data].to_vec()));
                16 + data
            }
            0x668e_33ef => {
                let len = n(16) as usize;
                out.push(Got::Chunk(c, h(4), h(6), b[20..20 + len].to_vec()));
                20 + len
            }
            other => panic!("not a reply: {other:#x}"),
        };
        b = &b[used..];
    }
    out
}
