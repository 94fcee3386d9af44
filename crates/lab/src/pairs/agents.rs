//! The agents of 'loligo pair', one on each controller: they start the OSDs of their node.

use super::place::Controller;
use crate::ceph::own_environment;
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::namespaces;
use crate::process::{Held, POLL, Process, last_lines, run};
use crate::state::State;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time that a setup may take, and an agent to be ready.
const LIMIT: Duration = Duration::from_secs(60);
/// The line by which an agent says that it is ready.
const READY: &str = "ready";

/// Gives a command what daemons of a controller find their sockets and their state by.
pub(crate) fn environment(at: &Layout, controller: Controller, command: &mut Command) {
    own_environment(command, &at.conf());
    command.env("LOLIGO_RUNTIME_DIR", controller.run(at)).env("LOLIGO_STATE_DIR", controller.state(at));
}

/// `loligo pair WHAT` on a controller.
fn pair(at: &Layout, state: &State, program: &Path, what: &str, controller: Controller) -> Command {
    let mut command = Command::new(program);
    command.args(["pair", what, "--config"]).arg(controller.node.pair_file(at));
    command.args(["--as", controller.side.name()]);
    environment(at, controller, &mut command);
    namespaces::within(&namespaces::name(&state.fsid, &controller.to_string()), &command)
}

/// Sets the pair up on a controller, once.
///
/// # Errors
/// With the agent's own words, if it refuses.
pub(crate) fn set_up(
    at: &Layout,
    state: &State,
    program: &Path,
    controller: Controller,
    stop: &Interrupt,
) -> Result<()> {
    run(&mut pair(at, state, program, "setup", controller), LIMIT, stop)
        .with_context(|| format!("setting up the pair on {controller}"))
        .map(drop)
}

/// Starts the agent of a controller.
///
/// # Errors
/// If nothing can be started.
pub(crate) fn start(at: &Layout, state: &State, program: &Path, controller: Controller) -> Result<Held> {
    let name = controller.agent_name();
    // Of an earlier one.
    let _ = fs::remove_file(at.output(&name));
    Process::hold(&name, &pair(at, state, program, "run", controller), &at.output(&name))
}

/// Waits until the agent of a controller says that it is ready.
///
/// # Errors
/// With its last words, if it ends, or the time is over.
pub(crate) fn wait_ready(at: &Layout, state: &State, controller: Controller, stop: &Interrupt) -> Result<()> {
    let begun = Instant::now();
    let name = controller.agent_name();
    loop {
        let said = fs::read_to_string(at.output(&name)).unwrap_or_default();
        if said.lines().any(|line| line == READY) {
            return Ok(());
        }
        stop.check()?;
        if !state.process(&name).is_some_and(Process::alive) || begun.elapsed() > LIMIT {
            bail!("{name} is not ready: {}", last_lines(&said, 3));
        }
        std::thread::sleep(POLL);
    }
}
