//! The lab that a command is about.

use clap::Args as Flags;
use loligo_lab::layout::Layout;
use std::path::PathBuf;

/// The lab that is meant
#[derive(Debug, Flags)]
pub(crate) struct Where {
    /// The lab's folder [default: $LOLIGO_LAB_DIR or /var/tmp/loligo-lab]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Where {
    /// The folder that is meant.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(Layout::default_dir)
    }
}
