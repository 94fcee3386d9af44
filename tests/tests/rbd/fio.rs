//! The part of a volume that fio writes and verifies beside other writers.

use crate::site::Site;
use loligo_tests::fio::Fio;
use loligo_tests::server::Volume;
use std::path::Path;

/// Offset of its part of a volume; what lies before is others'.
pub(crate) const FROM: usize = 32 << 20;
/// Bytes of its part.
pub(crate) const LEN: usize = 8 << 20;
/// Writes a second.
const RATE: u32 = 700;

/// True if it can run; says where not.
pub(crate) fn can_run() -> bool {
    loligo_tests::fio::can_run("fio beside writers")
}

/// Through the volume.
pub(crate) fn of(site: &Site<'_>) -> Fio {
    Fio::nbd(&site.dir, &site.socket(), Volume::NAME).part(FROM, LEN, RATE)
}

/// In a file that holds the volume.
pub(crate) fn in_file(site: &Site<'_>, file: &Path) -> Fio {
    Fio::file(&site.dir, file).part(FROM, LEN, RATE)
}
