//! The partner's power, by commands. It is off only when the status says so.

use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use loligo_pair::machine::{Answer, Failure};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time that one command may take.
const COMMAND: Duration = Duration::from_secs(15);
/// The time after which a power that is not off stays on for all that is known.
const LIMIT: Duration = Duration::from_secs(40);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// Cuts the power by `off`, and asks by `status` until it says `off`.
pub fn cut(off: &[String], status: &[String]) -> Answer {
    cut_within(off, status, LIMIT)
}

fn cut_within(off: &[String], status: &[String], limit: Duration) -> Answer {
    let begun = Instant::now();
    // A refusal is shown by the status: a power that is off already may be refused.
    let ordered = run(off);
    while begun.elapsed() < limit {
        if run(status).is_ok_and(|said| said.trim() == "off") {
            return Answer::Done;
        }
        std::thread::sleep(LOOK);
    }
    let why = match ordered {
        Ok(_) => {
            "it said yes, and its status does not say off: see by hand what power-off and power-status do"
                .to_owned()
        }
        Err(why) => why,
    };
    Answer::Failed(Failure::Other(why))
}

fn run(command: &[String]) -> Result<String, String> {
    let (program, words) = command.split_first().ok_or("there is no command for it")?;
    process::run(Command::new(program).args(words), COMMAND, &Interrupt::default())
        .map_err(|why| format!("{why:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn power_is_off_only_if_the_status_says_so() {
        assert_eq!(cut(&words("true"), &words("echo off")), Answer::Done);
        assert_eq!(cut(&words("false"), &words("echo off")), Answer::Done);
    }

    #[test]
    fn a_board_that_says_yes_and_does_nothing_is_not_believed() {
        let limit = Duration::from_millis(300);
        for (off, status, why) in [
            ("true", "echo on", "its status does not say off"),
            ("true", "echo offline", "its status does not say off"),
            ("true", "false", "its status does not say off"),
            ("false", "echo on", "false"),
        ] {
            let said = format!("{:?}", cut_within(&words(off), &words(status), limit));
            assert!(said.starts_with("Failed") && said.contains(why), "{off}, {status}: {said}");
        }
    }
}
