//! The command that a volume has for its starts.

use crate::{guard, started};
use std::process::{Command, Stdio};

/// Runs it, not waiting for it longer than it takes to say what became of it.
pub(super) fn after_start(words: &[String]) {
    let Some((program, args)) = words.split_first() else { return };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    started::apart(&mut command);
    let (program, name) = (program.clone(), loligo_log::speaker());
    let warn =
        move |words: &str| loligo_log::line(name.as_deref(), format_args!("warning: after-start: {words}"));
    let unheard = warn.clone();
    let waits = move || {
        guard::unmark();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(why) => return warn(&format!("{program} cannot be run: {why}")),
        };
        // What it starts has no part in the daemon's standing when memory is short.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), "0");
        match child.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => warn(&format!("{program} ended with {status}")),
            Err(why) => warn(&format!("{program}: {why}")),
        }
    };
    if let Err(why) = std::thread::Builder::new().name("after-start".to_owned()).spawn(waits) {
        unheard(&format!("no thread can be had: {why}"));
    }
}
