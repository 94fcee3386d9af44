//! `loligo`: the command line. One file per subcommand; each calls the room that does the work.

mod bench;
mod cache;
mod config;
mod daemon;
mod demo;
mod doctor;
mod flush;
mod hold;
mod inspect;
mod lab;
mod manual;
mod mode;
mod osd;
mod param;
mod probe;
mod rbd;
mod release;
mod serve;
mod stats;
mod top;
mod values;
mod volume;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use loligo_log::say;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Loligo puts flash in front of slow block devices: safely, and without a cliff.
///
/// 'loligo serve' runs one volume in the foreground: a core (the slow device) seen through a cache (the fast one). 'loligod' (or
/// 'loligo daemon') serves many, by one file and by 'loligo volume'. The other commands look at, tune, empty and dissolve such
/// volumes. 'loligo demo' shows it all on this machine in a few minutes.
#[derive(Debug, Parser)]
#[command(name = "loligo", version, propagate_version = true)]
#[command(after_long_help = "Environment:
  LOLIGO_RUNTIME_DIR  where control sockets lie; default /run/loligo for root,
                      $XDG_RUNTIME_DIR/loligo for others
  LOLIGO_LOG          what is logged on stderr: error, warn, info (default), debug

Exit status: 0 on success, 1 on every refusal and failure, with cause and mend on
stderr.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Stats(stats::Args),
    Flush(flush::Args),
    Mode(mode::Args),
    Param(param::Args),
    Release(release::Args),
    Inspect(inspect::Args),
    Cache(cache::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Lab(lab::Args),
    Osd(osd::Args),
    Rbd(rbd::Args),
    Volume(volume::Args),
    Config(config::Args),
    Daemon(daemon::Args),
    Doctor(doctor::Args),
    Top(top::Args),
    Probe(probe::Args),
    Man(manual::ManArgs),
    Completions(manual::CompletionArgs),
    #[command(name = loligo_export::ublk::HOLD_DEVICE)]
    Hold(hold::Args),
}

/// What this program was called as: under the daemon's name it is the daemon.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let called = words.first().map(Path::new).and_then(Path::file_name);
    if called.is_some_and(|name| name == "loligod") {
        words.insert(1, "daemon".into());
    }
    words
}

fn main() -> ExitCode {
    loligo_log::install();
    let cli = match Cli::try_parse_from(words()) {
        Ok(cli) => cli,
        Err(said) => {
            // Whoever asked may have closed the pipe.
            let _ = said.print();
            // Scripts know one status for every refusal; the parser's own would be 2.
            return if said.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let done = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Stats(args) => stats::run(&args),
        Command::Flush(args) => flush::run(&args),
        Command::Mode(args) => mode::run(&args),
        Command::Param(args) => param::run(args),
        Command::Release(args) => release::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Cache(args) => cache::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Osd(args) => osd::run(args),
        Command::Rbd(args) => rbd::run(args),
        Command::Volume(args) => volume::run(args),
        Command::Config(args) => config::run(args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Man(args) => manual::man(Cli::command(), &args),
        Command::Completions(args) => manual::completions(Cli::command(), &args),
        Command::Hold(args) => Ok(loligo_export::ublk::hold(&args.node)),
    };
    let done = done.and_then(|code| {
        loligo_log::finish_output().context("the result cannot be written to standard output")?;
        Ok(code)
    });
    let code = done.unwrap_or_else(|error| {
        say!("error: {error:#}");
        ExitCode::FAILURE
    });
    loligo_log::finish();
    code
}
