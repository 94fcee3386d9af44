//! A part of the service that is a process of its own; hidden from the list of commands.

/// Hold a block device that nobody uses until the input ends
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Its name in /dev
    pub(crate) node: String,
}
