//! `loligo`: the command line. One file per subcommand; each calls the room that does the work.

mod array;
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
mod lab_fault;
mod lab_place;
mod manual;
mod mode;
mod osd;
mod outcome;
mod pair;
mod param;
mod probe;
mod rbd;
mod release;
mod serve;
mod stats;
mod top;
mod tune;
mod values;
mod volume;

use anyhow::Context;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use loligo_client::outcome::Outcome;
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
  LOLIGO_RUNTIME_DIR  folder of control sockets; default /run/loligo for root,
                      $XDG_RUNTIME_DIR/loligo for others
  LOLIGO_LOG          messages logged on stderr: error, warn, info (default), debug

Exit status:
  0    it is done; with --no-wait: it has begun
  1    it failed
  2    the command line is wrong
  3    it is refused: nothing was changed
  4    it is not over: it goes on by itself, or waits for a device
  130  interrupted
Cause and mend are on stderr. 'serve' and 'daemon' also end with 1 if a start is
refused; 'inspect', 'doctor' and 'rbd status' if they find something wrong;
'probe' if it cannot read a device.

Every command that changes something takes --json. It prints one object on stdout
then, also on failure. 'outcome' is done, begun, failed, usage, refused,
waiting or interrupted; 'error' says why, if it is not done.")]
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
    Pair(pair::Args),
    Tune(Box<tune::Args>),
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

/// The name that this program was called by: under the daemon's name it is the daemon.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let called = words.first().map(Path::new).and_then(Path::file_name);
    if called.is_some_and(|name| name == "loligod") {
        words.insert(1, "daemon".into());
    }
    words
}

/// True if the command that is meant was asked for JSON.
fn wants_json(matches: &ArgMatches) -> bool {
    let mut last = matches;
    while let Some((_, below)) = last.subcommand() {
        last = below;
    }
    last.try_get_one::<bool>("json").is_ok_and(|json| json == Some(&true))
}

/// The answer to words that are no command, or ask for help.
fn no_command(said: &clap::Error, words: &[OsString]) -> ExitCode {
    // Whoever asked may have closed the pipe.
    let _ = said.print();
    if !said.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let own = words.split(|word| word == "--").next().unwrap_or_default();
    if own.iter().any(|word| word == "--json") {
        loligo_log::out!("{:#}\n", outcome::misuse(&said.render().to_string()));
        let _ = loligo_log::finish_output();
    }
    ExitCode::from(Outcome::Usage.exit_code())
}

fn main() -> ExitCode {
    loligo_log::install();
    let words = words();
    let parsed = Cli::command().try_get_matches_from(&words);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, wants_json(&matches))));
    let (cli, json) = match parsed {
        Ok(parsed) => parsed,
        Err(said) => return no_command(&said, &words),
    };
    let serves = matches!(cli.command, Command::Serve(_) | Command::Daemon(_));
    let done = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Stats(args) => stats::run(&args),
        Command::Flush(args) => flush::run(args),
        Command::Mode(args) => mode::run(args),
        Command::Param(args) => param::run(args),
        Command::Release(args) => release::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Cache(args) => cache::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Osd(args) => osd::run(args),
        Command::Pair(args) => pair::run(args),
        Command::Tune(args) => tune::run(*args),
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
    if let (Err(error), true) = (&done, json) {
        loligo_log::out!("{:#}\n", outcome::problem(error));
    }
    let written = loligo_log::finish_output().context("the result cannot be written to standard output");
    let code = done.and_then(|code| written.map(|()| code)).unwrap_or_else(|error| {
        say!("error: {error:#}");
        // A unit that is started again knows one status for every start that comes to nothing.
        if serves { ExitCode::FAILURE } else { ExitCode::from(outcome::exit_status(&error)) }
    });
    loligo_log::finish();
    if serves { loligo_volume::rbd::end(code) } else { code }
}
